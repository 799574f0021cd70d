"""How the group of two languages judges a failure of Kafka's VerifyConsumerRebalance; without Java and ZooKeeper."""

from __future__ import annotations

import json
from random import Random
from typing import cast

import pytest

from tests.kit.zookeeper_era.mixed_group import VERIFICATIONS, VERIFIED, MixedGroup, Subscription
from tests.kit.zookeeper_era.processes import Process
from tests.kit.zookeeper_era.tree import GroupNodes, Tree

FAILED = "No owner for partition"
REGISTRATION = json.dumps({"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "1"})


def nodes(session: int) -> GroupNodes:
    """The nodes of one consumer that owns the only partition."""
    paths = ("/consumers/g/ids/c", "/consumers/g/owners/t/0")
    return GroupNodes({"c": REGISTRATION}, {("t", 0): "c-0"}, dict.fromkeys(paths, session), {})


class Group(MixedGroup):
    """A group whose sessions at each quiet moment and during each verification are given.

    Arguments:
        current: the session behind each verification that fails.
        quiet: the session of each further quiet moment.
    """

    def __init__(self, current: list[int], quiet: list[int]) -> None:
        super().__init__("g", "range", [Subscription("static", "t")], cast(Tree, None), "zookeeper:1", Random(1))
        self._current, self._quiet = current, quiet

    def _nodes(self) -> GroupNodes:
        return nodes(self._current.pop(0))

    async def quiet(self) -> GroupNodes:
        return nodes(self._quiet.pop(0))


class Tool:
    """A Java process whose tool prints these texts, one per run."""

    def __init__(self, *printed: str) -> None:
        self._printed = list(printed)

    async def tool(self, _name: str, *_args: str) -> str:
        return self._printed.pop(0)

    def log_tail(self) -> str:
        return "the log"


async def verify(group: Group, *printed: str) -> None:
    await group.verify(cast(Process, Tool(*printed)), nodes(1))


async def test_a_failure_counts_while_the_group_is_unchanged() -> None:
    with pytest.raises(AssertionError, match=FAILED):
        await verify(Group([1], []), FAILED)


async def test_a_failure_counts_at_the_next_quiet_moment() -> None:
    with pytest.raises(AssertionError, match=FAILED):
        await verify(Group([2, 3], [3]), FAILED, FAILED)


async def test_the_next_quiet_moment_is_verified_where_a_session_has_ended_meanwhile() -> None:
    group = Group([2], [3])
    await verify(group, FAILED, VERIFIED)
    assert group.log == ["the group changed during VerifyConsumerRebalance"]


async def test_the_number_of_verifications_is_bounded() -> None:
    sessions = list(range(2, 2 + VERIFICATIONS))
    with pytest.raises(AssertionError, match=f"during {VERIFICATIONS} verifications"):
        await verify(Group(list(sessions), list(sessions)), *[FAILED] * VERIFICATIONS)
