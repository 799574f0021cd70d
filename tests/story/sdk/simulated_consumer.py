"""Applications that consume in groups in a simulation: they poll, handle, commit, leave, crash and come back."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from kafkalite_sdk.consumer.consumer import Consumer
from kafkalite_sdk.consumer.listeners import RebalanceListener

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.schema import Request
from kafkalite.testing.virtual_loop import pass_time

RECOVERY_S = 120.0


class GroupLedger:
    """What the members of a group have handled, by topic and partition."""

    def __init__(self) -> None:
        self.handled: dict[tuple[str, int], set[int]] = {}
        self.repeated = 0

    def handle(self, topic: str, partition: int, offset: int) -> None:
        """A member has handled a record."""
        offsets = self.handled.setdefault((topic, partition), set())
        self.repeated += offset in offsets
        offsets.add(offset)

    def check_commit(self, topic: str, partition: int, committed: int) -> None:
        """All records in front of a committed offset are handled."""
        handled = self.handled.get((topic, partition), set())
        missing = [offset for offset in range(committed) if offset not in handled]
        assert not missing, f"{topic}-{partition}: {committed} is committed, {missing[:5]} ... are not handled"


class CommitCheck:
    """Checks the OffsetCommit requests of one consumer when it submits them: no partition is committed after its
    revocation or loss, whether or not the broker would reject the commit.

    Arguments:
        consumer: the consumer.
        listener: knows its partitions.
        ledger: of its group.
        name_of: the name of a topic id.
    """

    def __init__(
        self, consumer: Consumer[Any, Any], listener: "Owned", ledger: GroupLedger, name_of: Callable[[bytes], str]
    ) -> None:
        self.commits = 0
        self.failure: AssertionError | None = None
        self._listener = listener
        self._ledger = ledger
        self._name_of = name_of
        client = consumer._driver.client
        submit = client.submit

        def observed(node: int, request: Request, *args: Any, **named: Any) -> None:
            if isinstance(request, OffsetCommitRequest):
                self._check(request)
            submit(node, request, *args, **named)

        client.submit = observed  # type: ignore[method-assign]

    def _check(self, request: OffsetCommitRequest) -> None:
        self.commits += 1
        for topic in request.topics:
            name = topic.name or self._name_of(topic.topic_id)
            for part in topic.partitions:
                try:
                    assert (name, part.partition_index) in self._listener.owned, (
                        f"{name}-{part.partition_index} is committed by a member that does not own it"
                    )
                    self._ledger.check_commit(name, part.partition_index, part.committed_offset)
                except AssertionError as error:
                    self.failure = self.failure or error


class Owned(RebalanceListener):
    """Keeps the partitions of a member; leaves them out of `owned` when they are revoked or lost.

    A listener is cancelled with the task that polls, and is not called again. The member then still has the partitions:
    the next poll releases them, and until then the application may commit. So they are left out at the next assignment.
    """

    def __init__(self, world: Any) -> None:
        self.owned: set[tuple[str, int]] = set()
        self._releasing: set[tuple[str, int]] = set()
        self.next: dict[tuple[str, int], int] = {}
        self.ownerships: dict[tuple[str, int], int] = {}
        self._world = world

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._world.count("revoked")
        self._releasing.update(partitions)
        if self._world.random.random() < 0.2:
            await pass_time(0.5)
        self._remove(partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._world.count("lost")
        self._remove(partitions)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._world.count("assigned")
        self._remove(self._releasing)
        self._releasing.clear()
        for each in partitions:
            self.owned.add(tuple(each))  # type: ignore[arg-type]
            self.ownerships[each] = self.ownerships.get(each, 0) + 1

    def _remove(self, partitions: Collection[tuple[str, int]]) -> None:
        self.owned.difference_update(partitions)
        for each in partitions:
            self.next.pop(each, None)


class ConsumerApplication:
    """One application: after each consumer that ends it opens another one.

    Arguments:
        world: the surroundings.
        ledger: of its group.
        topics: what it reads.
        settings: of its consumers.
        make: creates a consumer.
    """

    def __init__(
        self,
        world: Any,
        ledger: GroupLedger,
        topics: list[str],
        settings: dict[str, Any],
        make: Callable[..., Consumer[Any, Any]],
    ) -> None:
        self.world = world
        self.random = world.random
        self.ledger = ledger
        self.topics = topics
        self.settings = settings
        self.stopped = False
        self._make = make

    async def run(self, until: float) -> None:
        """Consume at random until a time of the loop, then steadily until `stopped`."""
        while not self.stopped:
            listener = self._listener()
            consumer = self._make(self.world.bootstrap, environment=self.world.environment(), **self.settings)
            check = CommitCheck(consumer, listener, self.ledger, self.world.name_of)
            try:
                await consumer.start()
            except KafkaError:
                self.world.count("consumer start fails")
                await consumer.close()
                await pass_time(1.0)
                continue
            commit = True
            try:
                consumer.subscribe(self.topics, listener=listener)
                commit = await self._consume(consumer, listener, until)
            finally:
                began, timeout_s = self.world.loop.time(), self.random.choice((0.5, 5.0, 20.0))
                try:
                    await self._close(consumer, timeout_s, commit=commit)
                except KafkaError:
                    self.world.count("consumer close fails")
                assert self.world.loop.time() <= began + timeout_s + 0.6, "close returns too late"
                await self._closed()
            if check.failure is not None:
                raise check.failure
            self.world.counts["commits"] = self.world.counts.get("commits", 0) + check.commits

    def _listener(self) -> Owned:
        return Owned(self.world)

    async def _close(self, consumer: Consumer[Any, Any], timeout_s: float, *, commit: bool) -> None:
        await consumer.close(timeout_s, commit=commit)

    async def _closed(self) -> None:
        """The consumer is closed."""

    async def _consume(self, consumer: Consumer[Any, Any], listener: Owned, until: float) -> bool:
        """Poll and handle; returns whether the consumer ends in order."""
        while not self.stopped:
            wild = self.world.loop.time() < until
            if wild and self.random.random() < 0.004:
                return self.random.random() < 0.5
            try:
                records = await consumer.poll(self.random.choice((0.0, 0.1, 1.0)), self.random.choice((None, 1, 20)))
            except KafkaError:
                self.world.count("poll raises")
                continue
            for record in records:
                self._handle(listener, record)
            await pass_time(self.random.choice((0.0, 0.01, 0.1)) if not wild or self.random.random() < 0.97 else 4.0)
            if not self.settings["enable_auto_commit"] and (not wild or self.random.random() < 0.3):
                await self._commit(consumer)
        return True

    def _handle(self, listener: Owned, record: Any) -> None:
        self._check_order(listener, record)
        listener.next[record.topic, record.partition] = record.offset + 1
        self.ledger.handle(record.topic, record.partition, record.offset)

    @staticmethod
    def _check_order(listener: Owned, record: Any) -> None:
        partition = record.topic, record.partition
        assert partition in listener.owned, f"{partition} is returned and not owned"
        expected = listener.next.get(partition, record.offset)
        assert record.offset == expected, f"{partition}: offset {record.offset} is returned, expected {expected}"

    async def _commit(self, consumer: Consumer[Any, Any]) -> None:
        try:
            if self.random.random() < 0.5:
                await consumer.commit()
            else:
                consumer.commit_nowait()
        except KafkaError:
            self.world.count("commit raises")


def consumer_settings(world: Any, group: str, protocol: str) -> dict[str, Any]:
    """Settings at random."""
    random = world.random
    settings: dict[str, Any] = {
        "group": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": random.random() < 0.5,
        "auto_commit_interval_ms": random.choice((100, 5000)),
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 1000,
        "max_poll_interval_ms": random.choice((3000, 60_000)),
        "request_timeout_ms": random.choice((3000, 10_000)),
        "default_api_timeout_ms": 5000,
        "fetch_max_wait_ms": random.choice((50, 500)),
        "metadata_max_age_ms": random.choice((1000, 300_000)),
    }
    if protocol == "classic":
        settings["partition_assignment_strategy"] = [random.choice(("range", "cooperative-sticky", "sticky"))]
    return settings


async def until_handled(world: Any, ledger: GroupLedger, logs: Any, consuming: list[asyncio.Task[None]]) -> None:
    """Wait until the group has handled every record."""
    deadline = world.loop.time() + RECOVERY_S
    missing = {partition: {offset for offset, _ in log} for partition, log in logs.items()}
    while any(missing.values()):
        missing = {partition: offsets - ledger.handled.get(partition, set()) for partition, offsets in missing.items()}
        for each in consuming:
            if each.done():
                each.result()
        left = {partition: len(offsets) for partition, offsets in missing.items() if offsets}
        assert world.loop.time() < deadline, f"records are not handled {RECOVERY_S:.0f} s after the last fault: {left}"
        await pass_time(0.5)
