"""Reads the config nodes of topics, brokers and groups.

A node whose configs cannot be read, because they are invalid or no permission is given, has the result None: what
depends on it then keeps records.
"""

import logging
from collections.abc import Mapping
from functools import partial

from kafkalite.clock import Outcome, Then, await_outcome
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError, NoNodeError, SessionExpiredError

LOGGER = logging.getLogger("kafkalite.cluster")

Texts = Mapping[str, str]


def read_configs(session: Coordination, path: str, then: Then) -> None:
    """Read the config node `path` over `session`.

    `then` is called with the texts by key, none without a node, or with an error, ZnodeError included.
    """

    def read(outcome: Outcome) -> None:
        if isinstance(outcome.error, NoNodeError):
            then(Outcome({}))
        elif outcome.error is not None:
            then(outcome)
        else:
            try:
                found = Outcome(znodes.decode_configs(path, outcome.value[0]))
            except znodes.ZnodeError as error:
                found = Outcome(error=error)
            then(found)

    session.get(path, read)


def is_out_of_reach(error: BaseException | None) -> bool:
    """Whether a read failed because of the connection or the session, so that it can be repeated."""
    return isinstance(error, (ConnectionLossError, SessionExpiredError))


def readable(outcome: Outcome, path: str) -> Texts | None:
    """The texts of a read node; None if they cannot be read, which is logged. Raises errors of connection and session,
    and those that no service reports.
    """
    error = outcome.error
    if isinstance(error, (znodes.ZnodeError, CoordinationError)) and not is_out_of_reach(error):
        LOGGER.error("%s: the configs cannot be read: %s", path, error)
        return None
    texts: Texts = outcome.result()
    return texts


async def stored_configs(session: Coordination, path: str) -> Texts | None:
    """The texts of a config node, as `readable`."""
    return readable(await await_outcome(partial(read_configs, session, path)), path)


async def stored_group_configs(session: Coordination) -> dict[str, dict[str, str]]:
    """The texts of every group that has any; those of a group that cannot be read are left out."""
    listed = await await_outcome(partial(session.children, znodes.GROUP_CONFIGS))
    if isinstance(listed.error, CoordinationError) and not is_out_of_reach(listed.error):
        LOGGER.error("%s: the configs of groups cannot be read: %s", znodes.GROUP_CONFIGS, listed.error)
        return {}
    found: dict[str, dict[str, str]] = {}
    for name in listed.result()[0]:
        texts = await stored_configs(session, f"{znodes.GROUP_CONFIGS}/{name}")
        if texts:
            found[znodes.group_of(name)] = dict(texts)
    return found
