"""Members of the SDK whose handler or process does nothing for longer than their session."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupType
from kafkalite_sdk import Consumer, RebalanceListener, TopicPartition

from kafkalite.errors import KafkaError, KafkaErrorCode, KafkaTimeoutError
from tests.compat.conftest import MakeTopic, unused_name
from tests.compat.test_groups_migration import type_of
from tests.kit.brokers import IS_KAFKALITE, wait_until
from tests.kit.clients.groups import EACH, PARTITIONS, SHORT_MS, committed, doomed, partitions_of, read_history, write
from tests.kit.clients.members import Crowd, Kind, Wish
from tests.kit.clients.sdk import SDK_KINDS
from tests.kit.sdk_load import elapse

CLASSIC = {"group_protocol": "classic", "session_timeout_ms": 6_000, "heartbeat_interval_ms": 200}
SESSION_S = {"classic": 6.0, "consumer": 10.0, "registered": 6.0}  # that of the consumer protocol is in SHORT_SESSIONS
SETTINGS: dict[str, dict[str, Any]] = {
    "classic": CLASSIC,
    "consumer": {"group_protocol": "consumer"},
    "registered": {**CLASSIC, "group_protocol": "registered"},
}
TYPES = {  # librdkafka does not know the third type
    "classic": ConsumerGroupType.CLASSIC,
    "consumer": ConsumerGroupType.CONSUMER,
    "registered": ConsumerGroupType.UNKNOWN,
}
PROTOCOLS = list(SETTINGS) if IS_KAFKALITE else ["classic", "consumer"]


class Owned(RebalanceListener):
    """A listener that knows the partitions of its member."""

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()
        self.lost = 0

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions.update(partitions)

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions.difference_update(partitions)

    def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions.difference_update(partitions)
        self.lost += 1


STALE, ILLEGAL = KafkaErrorCode.STALE_MEMBER_EPOCH, KafkaErrorCode.ILLEGAL_GENERATION
COMMITS = {  # protocols of the two members, and the error of a commit for the partition of the other one
    ("consumer", "consumer"): STALE,
    ("consumer", "classic"): STALE,
    ("classic", "consumer"): ILLEGAL,
    ("classic", "classic"): None,
    ("registered", "registered"): ILLEGAL,
}


@pytest.mark.parametrize(("protocols", "code"), [each for each in COMMITS.items() if each[0][0] in PROTOCOLS])
async def test_commit_of_a_partition_of_another_member_ends_and_the_member_stays(
    group_address: str, new_group_topic: MakeTopic, protocols: tuple[str, str], code: KafkaErrorCode | None
) -> None:
    topic, group = new_group_topic(2), unused_name("moved")
    first_settings, second_settings = (
        {"group": group, "enable_auto_commit": False, "default_api_timeout_ms": 20_000, **SETTINGS[protocol]}
        for protocol in protocols
    )
    async with (
        asyncio.timeout(120),
        Consumer(group_address, **first_settings) as first,
        Consumer(group_address, **second_settings) as second,
    ):
        first.subscribe(topic)
        while len(first.assignment()) < 2:
            await first.poll(timeout=0.1)
        second.subscribe(topic)
        while not len(first.assignment()) == len(second.assignment()) == 1:
            await asyncio.gather(first.poll(timeout=0.1), second.poll(timeout=0.1))
        (own,), (moved,) = first.assignment(), second.assignment()
        member = first.health().member_id
        error: KafkaError | None = None
        try:
            await first.commit({own: 3, moved: 3})
        except KafkaError as raised:
            error = raised
        assert not isinstance(error, KafkaTimeoutError)
        if IS_KAFKALITE:
            assert (
                error is None if code is None else error is not None and error.code == code and str(moved) in str(error)
            )
        await first.commit({own: 4})
        assert first.health().member_id == member
        offsets = await first.committed([own])
    assert offsets[own] is not None and offsets[own].offset == 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_member_joins_during_a_long_handler(
    group_address: str, new_group_topic: MakeTopic, protocol: str
) -> None:
    topic, group = new_group_topic(PARTITIONS), unused_name("long-handler")
    await asyncio.to_thread(write, group_address, topic)
    settings = {"group": group, "auto_offset_reset": "earliest", "enable_auto_commit": False, **SETTINGS[protocol]}
    one, two = Owned(), Owned()
    async with (
        asyncio.timeout(120),
        Consumer(group_address, **settings) as slow,
        Consumer(group_address, **settings) as fast,
    ):
        slow.subscribe(topic, listener=one)
        read = 0
        while read < PARTITIONS * EACH:
            read += len(await slow.poll(1.0))
        fast.subscribe(topic, listener=two)
        joining = asyncio.create_task(polls_until(fast, two))
        await elapse(1.3 * SESSION_S[protocol])  # the handler
        assert len(one.partitions) + len(two.partitions) == PARTITIONS
        await slow.commit()
        while not joining.done():
            await slow.poll(0.1)
        assert one.lost == 0
        assert await asyncio.to_thread(type_of, group_address, group) == TYPES[protocol]
        assert one.partitions | two.partitions == {TopicPartition(*each) for each in partitions_of(topic)}
    offsets = await asyncio.to_thread(committed, group_address, group, partitions_of(topic))
    assert offsets == dict.fromkeys(partitions_of(topic), EACH)


async def polls_until(consumer: Consumer, owned: Owned) -> None:
    while len(owned.partitions) != PARTITIONS // 2:
        await consumer.poll(0.1)


@pytest.mark.parametrize("kind", SDK_KINDS, ids=lambda kind: kind.name)
def test_member_suspended_beyond_its_session(
    group_address: str, crowd: Crowd, new_group_topic: MakeTopic, tmp_path: Path, kind: Kind
) -> None:
    """It loses its partitions; when it continues, it joins again, reads on, and a commit succeeds."""
    topic, group, history = new_group_topic(PARTITIONS), unused_name("suspended"), tmp_path / "history"
    everything = partitions_of(topic)
    survivor = crowd.join(kind, Wish(group, (topic,), session_ms=SHORT_MS))
    crowd.share(everything, survivor)
    with doomed(kind, group_address, group, topic, history) as other:
        crowd.wait(lambda: 0 < len(survivor.assigned) < PARTITIONS, "a share of the other member")
        assert other.stdout is not None
        assert other.stdout.readline() == "assigned\n"
        other.send_signal(signal.SIGSTOP)
        crowd.share(everything, survivor)
        other.send_signal(signal.SIGCONT)
        crowd.wait(lambda: 0 < len(survivor.assigned) < PARTITIONS, "a share of the member that continues")
        records = set(write(group_address, topic))

        def all_are_read() -> bool:
            crowd.check()
            return records <= {*read_history(history), *survivor.seen}

        wait_until(all_are_read, "every record is read")
        assert records.intersection(read_history(history))
        assert other.stdout.readline() == "committed\n"
