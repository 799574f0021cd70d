"""The options `--zookeeper` and `--zookeeper-config` of group commands. Light: every group command imports it."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click

from kafkalite.cli.failure import fail

HELP = (
    "Use the groups of ZooKeeper-era consumers below /consumers. SERVERS: HOST:PORT,HOST:PORT/CHROOT; or the path of "
    "the directory with the tree of this machine (kafkalite.coordination.directory)."
)


class Tree(NamedTuple):
    """Where the groups are: servers as in zookeeper.connect, and the file with the security of the session."""

    servers: str
    config: str | None


def tree_options(*, required: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options; the command receives them as `tree`, None without `--zookeeper`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--zookeeper", metavar="SERVERS", required=required, help=HELP)
        @click.option(
            "--zookeeper-config",
            metavar="FILE",
            help="Settings of a broker (server.properties), of which TLS and identity for ZooKeeper are used.",
        )
        @wraps(command)
        def run(*args: Any, zookeeper: str | None, zookeeper_config: str | None, **options: Any) -> None:
            if zookeeper is None and zookeeper_config is not None:
                fail("--zookeeper-config is for --zookeeper: name the servers, too")
            command(*args, tree=None if zookeeper is None else Tree(zookeeper, zookeeper_config), **options)

        return run

    return decorate


def reject_options(given: dict[str, object]) -> None:
    """End the command if options are given that only groups of brokers have, by their names."""
    if names := [name for name, value in given.items() if value]:
        fail(f"{', '.join(names)}: groups in ZooKeeper have no such property; leave out the option, or --zookeeper")
