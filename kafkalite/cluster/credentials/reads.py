"""Reads the nodes of users from the tree."""

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from kafkalite.callbacks import FanIn
from kafkalite.clock import Outcome, Then, await_outcome
from kafkalite.cluster.configs.quota_reads import listed
from kafkalite.cluster.configs.reads import is_out_of_reach
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError, NoNodeError
from kafkalite.coordination.znodes import quotas
from kafkalite.slicing import Slicer

LOGGER = logging.getLogger("kafkalite.authentication")
READS_MAX = 500  # at a time while the broker starts

UserTexts: TypeAlias = Mapping[str, str] | None
Found: TypeAlias = dict[str, UserTexts]


def read_users(session: Coordination, slicer: Slicer, names: Iterable[str] | None, then: Then) -> None:
    """Read the settings of users.

    Arguments:
        session: with the coordination service.
        slicer: for thousands of users.
        names: of the users; None = all.
        then: called once with the outcome: the texts of each user that has a node, None where they cannot be read.
    """
    if names is not None:
        _read_each(session, slicer, list(names), then)
        return

    def named(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(outcome)
        else:
            _read_each(session, slicer, user_names(outcome.value), then)

    session.children(znodes.USER_CONFIGS, partial(listed, named))


def user_names(nodes: Iterable[str]) -> list[str]:
    """Return the users of the nodes; that of the default is none."""
    return [name for name in map(quotas.name_of, nodes) if name is not None]


def _read_each(session: Coordination, slicer: Slicer, names: list[str], then: Then) -> None:
    outcomes: FanIn[Outcome] = FanIn(len(names), lambda read: then(_collected(names, read)))

    def steps() -> Generator[None, None, None]:
        for index, name in enumerate(names):
            session.get(quotas.user_path(name), partial(outcomes.put, index))
            yield

    slicer.run(steps(), Outcome.result)


def _collected(names: list[str], outcomes: list[Outcome]) -> Outcome:
    found: Found = {}
    for name, outcome in zip(names, outcomes, strict=True):
        if is_out_of_reach(outcome.error):
            return outcome
        if not isinstance(outcome.error, NoNodeError):
            found[name] = texts_of(name, outcome)
    return Outcome(found)


def texts_of(name: str, outcome: Outcome) -> UserTexts:
    """Return the settings of a node that was read; None = they cannot be read, which is logged."""
    try:
        if isinstance(outcome.error, CoordinationError):
            raise outcome.error
        return quotas.decode_quotas(quotas.user_path(name), outcome.result()[0])
    except (znodes.ZnodeError, CoordinationError) as error:
        LOGGER.error("the settings of user %r cannot be read: %s", name, error)
        return None


async def load_users(session: Coordination, apply: Callable[[str, UserTexts], object]) -> None:
    """Read all users at the start of a broker. Raises CoordinationError."""
    nodes = await await_outcome(lambda then: session.children(znodes.USER_CONFIGS, partial(listed, then)))
    names = user_names(nodes.result())
    for first in range(0, len(names), READS_MAX):
        part = names[first : first + READS_MAX]
        outcomes = await await_outcome(partial(_read_part, session, part))
        for name, outcome in zip(part, outcomes.result(), strict=True):
            if is_out_of_reach(outcome.error):
                outcome.result()
            if not isinstance(outcome.error, NoNodeError):
                apply(name, texts_of(name, outcome))


def _read_part(session: Coordination, names: list[str], then: Then) -> None:
    outcomes: FanIn[Outcome] = FanIn(len(names), lambda read: then(Outcome(read)))
    for index, name in enumerate(names):
        session.get(quotas.user_path(name), partial(outcomes.put, index))
