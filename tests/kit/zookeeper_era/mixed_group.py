"""One group of Java's consumers and ours that join, leave, are killed and lose their sessions.

The checks of a quiet moment: every partition has the owner that both implementations compute, each owner node belongs
to the session of its consumer, Kafka's VerifyConsumerRebalance agrees, and every record below a committed offset has
been returned by a stream.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.kit.brokers import wait_until
from tests.kit.zookeeper_era import oracle
from tests.kit.zookeeper_era.links import Link
from tests.kit.zookeeper_era.processes import Member, Process, Read
from tests.kit.zookeeper_era.tree import GroupNodes, TopicPartition, Tree

QUIET_S = 45.0
POLL_S = 0.1
STREAMS_MAX = 3
VERIFICATIONS = 5
VERIFIED = "Rebalance operation successful !"
SETTINGS: dict[str, object] = {
    "zookeeper_session_timeout_ms": 3_000,
    "zookeeper_connection_timeout_ms": 20_000,
    "rebalance_backoff_ms": 300,
    "rebalance_max_retries": 40,
    "auto_commit_interval_ms": 1_000,
    "auto_offset_reset": "smallest",
    "fetch_wait_max_ms": 100,
    "refresh_leader_backoff_ms": 100,
}


class Subscription(NamedTuple):
    """What a member subscribes to: `static`, `white` or `black`, and topics or a regular expression."""

    pattern: str
    what: str


class Ledger:
    """The records that a group has processed, and which member did."""

    def __init__(self) -> None:
        self.read: dict[TopicPartition, set[int]] = defaultdict(set)
        self.repetitions: list[Read] = []

    def note(self, read: Read) -> None:
        """A stream has returned a record."""
        offsets = self.read[read.topic, read.partition]
        if read.offset in offsets:
            self.repetitions.append(read)
        offsets.add(read.offset)

    @property
    def repeated(self) -> int:
        """How many records were processed again."""
        return len(self.repetitions)

    def missing(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[int]]:
        """The offsets below these that no stream has returned."""
        found = {each: sorted(set(range(end)) - self.read[each]) for each, end in ends.items()}
        return {each: offsets for each, offsets in found.items() if offsets}


@dataclass
class Joined:
    """A member of the group, and its connection to ZooKeeper."""

    member: Member
    link: Link


class MixedGroup:
    """A group and its members.

    Arguments:
        name: group id.
        strategy: `range` or `roundrobin`.
        subscriptions: each member draws one.
        tree: a connection to ZooKeeper.
        zookeeper: its address.
        random: of the seed.
    """

    def __init__(
        self, name: str, strategy: str, subscriptions: list[Subscription], tree: Tree, zookeeper: str, random: Random
    ) -> None:
        self.name = name
        self.strategy = strategy
        self.ledger = Ledger()
        self.joined: list[Joined] = []
        self.log: list[str] = []
        self.our_settings: dict[str, object] = {}
        self.settings: dict[str, object] = {}
        self._hash_text = "{}-{}"
        self._subscriptions = subscriptions
        self._tree = tree
        self._zookeeper = zookeeper
        self._random = random
        self._numbers = itertools.count(1)

    def use_release(self, release: str) -> None:
        """The members are those of Kafka up to this release, `0.10`: round robin has another order then."""
        self._hash_text = "[{},{}]"
        self.our_settings = {"round_robin_release": release}

    async def join(self, process: Process) -> Joined:
        """Open a consumer in this process."""
        subscription = self._random.choice(self._subscriptions)
        streams = self._random.randrange(1, STREAMS_MAX + 1)
        name = f"{process.language}-{self.name}-{next(self._numbers)}"
        self.log.append(f"join {name} {subscription.pattern} {subscription.what} {streams}")
        link = await Link.open(self._zookeeper)
        named = {
            "group_id": self.name,
            "zookeeper_connect": link.address,
            "partition_assignment_strategy": self.strategy,
        }
        own = self.our_settings if process.language == "ours" else {}
        settings = {**SETTINGS, **self.settings, **own, **named}
        member = process.begin_open(name, *subscription, streams, self.ledger.note, **settings)
        joined = Joined(member, link)
        self.joined.append(joined)
        await member.expect("opened")
        return joined

    async def leave(self, joined: Joined) -> None:
        """Shut a consumer down."""
        self.log.append(f"leave {joined.member.name}")
        await joined.member.close()
        self._forget(joined)

    async def lose_session(self, joined: Joined) -> None:
        """Interrupt the connection of a consumer until its nodes are gone."""
        self.log.append(f"lose the session of {joined.member.name}")
        path = f"/consumers/{self.name}/ids/{joined.member.id}"
        before = self._nodes().sessions.get(path)
        joined.link.interrupt()
        await self._until(lambda: self._nodes().sessions.get(path) != before, f"the end of the session of {path}")
        joined.link.resume()

    def killed(self, process: Process) -> None:
        """The process was killed; its members are gone when their sessions expire."""
        for joined in [each for each in self.joined if each.member.process is process]:
            self.log.append(f"killed {joined.member.name}")
            self._forget(joined)

    def _forget(self, joined: Joined) -> None:
        joined.link.close()
        self.joined.remove(joined)

    def _nodes(self) -> GroupNodes:
        return self._tree.group(self.name)

    def expected_owners(self, consumers: Mapping[str, str]) -> dict[TopicPartition, str]:
        """The owner of each partition that both implementations compute for these registrations."""
        topics = self._tree.topics()
        if self.strategy == "range":
            return oracle.range_owners(consumers, topics)
        return oracle.round_robin_owners(consumers, topics, self._hash_text)

    async def quiet(self) -> GroupNodes:
        """Wait until the group is complete, and check it; returns its nodes."""
        state: dict[str, GroupNodes] = {}

        def complete() -> bool:
            nodes = state["nodes"] = self._nodes()
            alive = {each.member.id for each in self.joined}
            return set(nodes.consumers) == alive and nodes.owners == self.expected_owners(nodes.consumers)

        await self._until(complete, "a complete group", lambda: self._difference(state["nodes"]))
        nodes = state["nodes"]
        self._check_sessions(nodes)
        for process in {each.member.process for each in self.joined}:
            await process.synchronize()
        self._check_offsets(nodes)
        self.log.append(f"quiet: {len(nodes.consumers)} consumers, {len(nodes.owners)} owners")
        return nodes

    def _difference(self, nodes: GroupNodes) -> str:
        alive = {each.member.id for each in self.joined}
        expected = self.expected_owners(nodes.consumers)
        wrong = {each: (nodes.owners.get(each), expected.get(each)) for each in nodes.owners.keys() | expected.keys()}
        wrong = {each: pair for each, pair in wrong.items() if pair[0] != pair[1]}
        failures = {each.member.name: each.member.failures for each in self.joined if each.member.failures}
        return (
            f"registered and not expected: {set(nodes.consumers) - alive}; missing: {alive - set(nodes.consumers)}; "
            f"partitions with another owner than expected: {wrong}; failures: {failures}"
        )

    def _check_sessions(self, nodes: GroupNodes) -> None:
        for (topic, partition), stream in nodes.owners.items():
            consumer = stream.rsplit("-", 1)[0]
            owner = nodes.sessions[f"/consumers/{self.name}/owners/{topic}/{partition}"]
            assert owner == nodes.sessions[f"/consumers/{self.name}/ids/{consumer}"], (topic, partition, stream)
            assert owner != 0, f"{topic}-{partition} has an owner node that is not ephemeral"

    def _check_offsets(self, nodes: GroupNodes) -> None:
        committed = {each: int(text) for each, text in nodes.offsets.items()}
        skipped = self.ledger.missing(committed)
        assert not skipped, f"committed, but not returned by a stream: {skipped}\n{self.report()}"

    async def verify(self, java: Process, quiet: GroupNodes) -> None:
        """Kafka's VerifyConsumerRebalance agrees.

        The tool takes seconds on a loaded machine, and a session may expire meanwhile. Therefore a failure counts only
        if registrations, owners and their sessions are still those of the quiet moment. Otherwise the next quiet moment
        is verified, VERIFICATIONS times at most.

        Arguments:
            java: a process that runs the tool.
            quiet: the nodes that `quiet` has returned.
        """
        for _ in range(VERIFICATIONS):
            printed = await java.tool("verify", "--zookeeper.connect", self._zookeeper, "--group", self.name)
            if VERIFIED in printed:
                return
            assert not quiet.same_members(self._nodes()), f"{printed}\n{java.log_tail()}\n{self.report()}"
            self.log.append("the group changed during VerifyConsumerRebalance")
            quiet = await self.quiet()
        raise AssertionError(f"the group changed during {VERIFICATIONS} verifications\n{self.report()}")

    async def read_all(self, ends: Mapping[TopicPartition, int]) -> None:
        """Wait until every record below these offsets has been returned."""
        await self._until(lambda: not self.ledger.missing(ends), "all records", lambda: str(self.ledger.missing(ends)))

    async def _until(self, condition: Callable[[], bool], what: str, state: Callable[[], str] = str) -> None:
        """Wait for a condition for which there is no event."""
        try:
            await asyncio.to_thread(wait_until, condition, what, QUIET_S, POLL_S)
        except AssertionError as late:
            raise AssertionError(f"{late}: {state()}\n{self.report()}") from None

    def report(self) -> str:
        """What happened so far."""
        return "\n".join([f"group {self.name}, {self.strategy}:", *self.log])
