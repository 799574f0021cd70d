"""Completes the names of topics and groups and transactional ids for the shell.

A shell prints what the command prints while a line is edited, so an error, or a broker that does not answer in time, is
an empty list without a message.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import click
from kafkalite_sdk import Admin

from kafkalite.cli.client_options import Cluster, cluster_of
from kafkalite.cli.connection import create_client, first_that_answers
from kafkalite.errors import KafkaError

ANSWER_S = 2.0  # maximum delay of the shell


def complete_topics(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of topics that begin with a text; internal ones if it begins with `_`.

    Arguments:
        ctx: of the command, with the options before the name: `-b`, `--client-config`, `-X`.
        parameter: of the names; those that it has are left out.
        incomplete: the beginning.
    """

    async def topics(admin: Admin) -> list[str]:
        return [each.name for each in await admin.topics.list(internal=incomplete.startswith("_"))]

    return _complete(ctx, parameter, incomplete, topics)


def complete_groups(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of groups that begin with a text.

    Arguments:
        ctx, parameter, incomplete: as for `complete_topics`; with `--zookeeper` the groups of the tree.
    """
    if ctx.params.get("zookeeper") is not None:
        return _complete_groups_of_tree(ctx, parameter, incomplete)

    async def groups(admin: Admin) -> list[str]:
        return [each.group for each in await admin.groups.list()]

    return _complete(ctx, parameter, incomplete, groups)


def complete_transactional_ids(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the transactional ids that begin with a text.

    Arguments:
        ctx, parameter, incomplete: as for `complete_topics`.
    """

    async def transactional_ids(admin: Admin) -> list[str]:
        return [each.transactional_id for each in await admin.transactions.list()]

    return _complete(ctx, parameter, incomplete, transactional_ids)


def _complete_groups_of_tree(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from kafkalite.cli.group.zookeeper.connection import open_groups
    from kafkalite.cli.group.zookeeper.options import Tree

    async def groups() -> list[str]:
        async with open_groups(Tree(ctx.params["zookeeper"], ctx.params.get("zookeeper_config"))) as found:
            return await found.names()

    try:
        names = asyncio.run(asyncio.wait_for(groups(), ANSWER_S))
    except TimeoutError:
        os._exit(0)  # as below
    except (OSError, click.ClickException):
        return []
    return _matching(ctx, parameter, incomplete, names)


def _matching(ctx: click.Context, parameter: click.Parameter, incomplete: str, names: Sequence[str]) -> list[str]:
    given = ctx.params.get(str(parameter.name)) or ()
    return [each for each in names if each.startswith(incomplete) and each not in given]


def _complete(
    ctx: click.Context, parameter: click.Parameter, incomplete: str, read: Callable[[Admin], Awaitable[Sequence[str]]]
) -> list[str]:
    try:
        with ctx.scope(cleanup=False):
            cluster = cluster_of(
                **{name: ctx.params[name] for name in ("bootstrap", "client_config", "client_settings")}
            )
        names = asyncio.run(asyncio.wait_for(_names(cluster, read), ANSWER_S))
    except TimeoutError:
        os._exit(0)  # a thread that resolves the name of a host would delay the end of the process
    except (KafkaError, OSError, click.ClickException):
        return []
    return _matching(ctx, parameter, incomplete, names)


async def _names(cluster: Cluster, read: Callable[[Admin], Awaitable[Sequence[str]]]) -> Sequence[str]:
    def create(address: str) -> Admin:
        settings: dict[str, Any] = {"client_id": "kafkalite-completion", **cluster.settings}
        return create_client(Admin, address, settings)

    async with AsyncExitStack() as stack:
        admin = await first_that_answers(cluster, create, report=False)
        stack.push_async_exit(admin.__aexit__)
        return await read(admin)
