"""The records of internal topics against Apache Kafka: its own classes on random values, and its own log.

AGAINST plays no part here: both tests need Apache Kafka itself, and are skipped without Java.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from kafkalite._speedups.codec import encode
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.schema import Layout, Message, Slot
from kafkalite.protocol.stored import consumer_group_records, group_records, transaction_records
from kafkalite.protocol.stored.consumer_protocol import read_assignment, read_subscription, version_of
from kafkalite.protocol.stored.consumer_protocol import write as write_protocol
from kafkalite.protocol.stored.group_records import GroupMetadataValue
from kafkalite.protocol.stored.record_types import RecordTypes, StoredKey, StoredValue, write
from kafkalite.records import Record, batches
from tests.kit import jvm
from tests.kit.clients.confluent import QUIET, create_topics
from tests.kit.clients.model import DEADLINE_S, Deadline
from tests.kit.isolated import killable
from tests.kit.message_versions import EXTENSIONS_FROM
from tests.unit.protocol.guide import layout
from tests.unit.protocol.values import STORED_CASES, random_message, seed

pytestmark = pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
PER_CASE = 20
OWN = {cls for number, cls in group_records.RECORDS.keys.items() if number >= EXTENSIONS_FROM}
KAFKAS = [case for case in STORED_CASES if case[0] not in OWN | {cls.value_class for cls in OWN}]


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def as_json(of: Layout, message: Any) -> dict[str, Any]:
    """The message as Kafka's JSON converters show it: tagged fields are left out where they are as by default."""
    shown = {camel(slot.name): _shown(slot, getattr(message, slot.name)) for slot in of.fields}
    for slot in of.tagged:
        value = getattr(message, slot.name)
        if value != (slot.struct.cls() if slot.struct is not None else slot.default):
            shown[camel(slot.name)] = _shown(slot, value)
    return shown


def _shown(slot: Slot, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_shown(slot, one) for one in value]
    if slot.struct is not None:
        return as_json(slot.struct, value)
    if (slot.wire.element or slot.wire).kind == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


Drawn = list[tuple[type[Message], int, Any]]


def draw(cases: list[tuple[type[Message], int]]) -> Drawn:
    rng = random.Random(seed())
    return [(cls, version, random_message(rng, cls, version)) for cls, version in cases for _ in range(PER_CASE)]


def reencoded(kafka: str, drawn: Drawn) -> Iterator[str]:
    """Each message's fields as JSON, as that version of Kafka reads them; its bytes are the same again."""
    lines = [f"{cls.__name__} {version} {encode(message, version).hex()}\n" for cls, version, message in drawn]
    done = jvm.run_tool(kafka, str(jvm.KIT / "Reencode.java"), [], stdin="".join(lines))
    assert done.returncode == 0, done.stderr
    for one, line, answer in zip(drawn, lines, done.stdout.splitlines(), strict=True):
        written, _, fields = answer.partition(" ")
        assert written == line.split()[2], one
        yield fields


def test_kafkas_own_classes_agree() -> None:
    """Every version of every record: Kafka reads our bytes, sees the same fields and writes the same bytes."""
    drawn = draw(KAFKAS)
    for (cls, version, message), fields in zip(drawn, reencoded(jvm.CURRENT, drawn), strict=True):
        assert json.loads(fields) == as_json(layout(cls, version), message)


def test_kafka_3_reads_the_values() -> None:
    """What has been added since stands in tags, which an older broker skips and keeps."""
    keys = [*group_records.RECORDS.keys.values(), *transaction_records.RECORDS.keys.values()]
    since = {consumer_group_records.ConsumerGroupRegularExpressionKey, *OWN}
    values = {cls.value_class for cls in keys if cls not in since}
    drawn = draw([(cls, version) for cls, version in KAFKAS if cls in values])
    assert len(list(reencoded(jvm.PREVIOUS, drawn))) == len(drawn) > 0


# ---- what a running Apache Kafka writes -----------------------------------------------------------------------------

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 6000}
CONSUMER = {"group.protocol": "consumer"}
TOPICS = ("orders", "orders-more")


@contextmanager
def member(address: str, group: str, topics: list[str], *beside: ck.Consumer, **settings: Any) -> Iterator[ck.Consumer]:
    """A consumer that has been given partitions by those `beside` it; it leaves its group with the block."""
    common = {"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False, "log_level": QUIET}
    with closing(ck.Consumer({**common, "auto.offset.reset": "earliest", **settings})) as consumer:
        consumer.subscribe(topics)
        deadline = Deadline(f"{group}: partitions of {topics}")
        while not (consumer.assignment() and all(each.assignment() for each in beside)):
            for each in (consumer, *beside):
                each.poll(deadline.left(0.05))
        yield consumer


@killable
def live(address: str, *, everything: bool = True) -> None:
    """Groups of both protocols join, commit, share and leave; one is deleted.

    With everything, one commits in a transaction, too, and a classic member joins a consumer group.
    """
    here = [ck.TopicPartition("orders", 0, 3, metadata="where I was")]
    with member(address, "classic", ["orders"], **CLASSIC, **{"group.instance.id": "fixed"}) as first:
        first.commit(offsets=here, asynchronous=False)
        cooperative = {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"}
        with member(address, "cooperative", list(TOPICS), **cooperative) as second:
            second.commit(offsets=here, asynchronous=False)
            if everything:
                transact(address, second)
    with member(address, "consumer", ["orders"], **CONSUMER) as third:
        third.commit(offsets=here, asynchronous=False)
        with member(address, "consumer", ["^orders.*"], third, **CONSUMER):
            pass
        if everything:
            with member(address, "consumer", ["orders"], third, **CLASSIC):
                pass
    asyncio.run(commit_with_expiry(address))
    admin = AdminClient({"bootstrap.servers": address, "log_level": QUIET})
    admin.delete_consumer_groups(["cooperative"])["cooperative"].result(DEADLINE_S)


def transact(address: str, consumer: ck.Consumer) -> None:
    """Send a record and commit offsets in one transaction."""
    producer = ck.Producer({"bootstrap.servers": address, "transactional.id": "mover", "log_level": QUIET})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"moved")
    producer.send_offsets_to_transaction([ck.TopicPartition("orders", 1, 4)], consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)


async def commit_with_expiry(address: str) -> None:
    """OffsetCommit v2 carries a retention time, which no client of today sends."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    here = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="kept")
    request = OffsetCommitRequest(
        group_id="expiring", member_id="", retention_time_ms=3_600_000, topics=[topic(name="orders", partitions=[here])]
    )
    host, port = address.split(":")
    async with ClientConnection(host, int(port)) as peer:
        answer = await peer.call(request, version_max=2)
    assert answer.topics[0].partitions[0].error_code == 0


def stored(data: Path, topic: str) -> Iterator[Record]:
    """The records of a topic in a stopped broker's directory, without control batches."""
    logs = sorted(data.glob(f"{topic}-*/*.log"))
    assert logs, f"no log of {topic} in {data}"
    for log in logs:
        for batch in batches(log.read_bytes()):
            if not batch.control:
                yield from batch


def check(records: RecordTypes, record: Record) -> tuple[StoredKey, StoredValue | None]:
    """Decode a record and encode it again: the bytes are the same, and the version is the one that we would write."""
    assert record.key is not None
    type_id, key = records.read_key(record.key)
    assert key is not None, f"record type {type_id}: {record.key.hex()}"
    value = None if record.value is None else records.read_value(type_id, record.value)
    assert write(key, value) == (record.key, record.value)
    return key, value


def check_members(group: GroupMetadataValue) -> None:
    """The subscriptions and assignments of the members of a classic group."""
    for each in group.members:
        subscription = read_subscription(each.subscription)
        assert subscription.topics
        assert write_protocol(subscription, version_of(each.subscription)) == each.subscription
        if each.assignment:
            assert write_protocol(read_assignment(each.assignment), version_of(each.assignment)) == each.assignment


def test_the_log_of_apache_kafka(tmp_path: Path) -> None:
    """Every record that Kafka 4.3 writes for groups and transactions is read, and written again byte for byte."""
    with jvm.start_kafka(jvm.CURRENT, tmp_path / "kafka", heap="512m", overrides=SETTINGS) as kafka:
        create_topics(kafka.address, *TOPICS, partitions=2)
        live(kafka.address)
    found = [check(group_records.RECORDS, record) for record in stored(kafka.data, "__consumer_offsets")]
    seen = Counter((key.type_id, value is not None) for key, value in found)
    print(dict(sorted(seen.items())))
    assert {number for number, there in seen if there} == {1, 2, 3, 5, 6, 7, 8, 16}
    assert {number for number, there in seen if not there} >= {1, 2, 5, 7, 8}
    values = [value for _, value in found if value is not None]
    check_values(values)

    transactions = [check(transaction_records.RECORDS, record) for record in stored(kafka.data, "__transaction_state")]
    states = {value.transaction_status for _, value in transactions if value is not None}  # type: ignore[attr-defined]
    assert states >= {0, 1, 2, 4}


def check_values(values: list[StoredValue]) -> None:
    """The rarer shapes were among them: an expiry, a topic id, a classic member of a consumer group, a pattern."""
    commits = [value for value in values if isinstance(value, group_records.OffsetCommitValue)]
    assert {commit.version_written() for commit in commits} == {1, 4}
    # confluent-kafka sends metadata with the NUL at the end of its C string, and Kafka keeps it.
    assert {commit.metadata.rstrip("\0") for commit in commits} >= {"where I was", "kept"}
    groups = [value for value in values if isinstance(value, GroupMetadataValue)]
    assert {each.group_instance_id for group in groups for each in group.members} >= {None, "fixed"}
    for group in groups:
        check_members(group)
    members = [value for value in values if isinstance(value, consumer_group_records.ConsumerGroupMemberMetadataValue)]
    assert {each.classic_member_metadata is None for each in members} == {True, False}
    assert any("^orders.*" in (each.subscribed_topic_regex or "") for each in members)
