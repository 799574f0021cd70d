"""The SDK and other clients choose the same partition for a key, and share groups.

`test_records`, `test_codecs` and `test_groups` have the SDK as one of their clients.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaProducer
from kafkalite_sdk import Producer

from tests.compat.conftest import MakeTopic, unused_name
from tests.compat.test_groups_migration import type_of
from tests.kit import jvm
from tests.kit.clients.confluent import Outgoing, RecordProducer
from tests.kit.clients.groups import EACH, PARTITIONS, commit_all, partitions_of, write
from tests.kit.clients.java import JAVA_VERSIONS
from tests.kit.clients.java_members import JavaProcess
from tests.kit.clients.members import AIO, CONSUMER, COOPERATIVE, EAGER, PYTHON, Crowd, Kind, Wish
from tests.kit.clients.sdk import SDK_CONSUMER, SDK_COOPERATIVE, SDK_RANGE
from tests.kit.isolated import Isolated
from tests.kit.seeds import chosen_seed

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
needs_java = pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")

SEED = chosen_seed()
KEYS = 10_000
PARTITION_COUNTS = (1, 2, 17, 1_000)
KEY_BYTES_MAX = 40
LARGE_BYTES = 1 << 20
REQUEST_BYTES_MAX = 4 << 20
FLUSH_S = 60.0
CLASSIC, KIP_848 = ck.ConsumerGroupType.CLASSIC, ck.ConsumerGroupType.CONSUMER
Keys = Sequence[tuple[str, bytes]]  # topic and key


def by_sdk(address: str, keys: Keys, partitioner: str = "murmur2") -> list[int]:
    """The partitions of the keys."""

    async def send() -> list[int]:
        async with Producer(address, partitioner=partitioner, max_request_size=REQUEST_BYTES_MAX) as producer:
            sent = []
            for topic, key in keys:
                sent.append(producer.send(topic, b"value", key))
                await producer.drain()
            return [(await each).partition for each in sent]

    return asyncio.run(send())


def by_aiokafka(address: str, keys: Keys) -> list[int]:
    async def send() -> list[int]:
        async with AIOKafkaProducer(bootstrap_servers=address, max_request_size=REQUEST_BYTES_MAX) as producer:
            sent = [await producer.send(topic, b"value", key) for topic, key in keys]
            return [(await each).partition for each in sent]

    return asyncio.run(send())


def by_confluent(address: str, keys: Keys, partitioner: str = "murmur2_random") -> list[int]:
    settings = {
        "bootstrap.servers": address,
        "partitioner": partitioner,
        "message.max.bytes": REQUEST_BYTES_MAX,
    }
    found: dict[int, int] = {}
    with Isolated(RecordProducer, settings) as producer:
        delivered = []
        for number, (topic, key) in enumerate(keys):
            delivered += producer.send(topic, [Outgoing(number, b"value", key)])
        left, last = producer.flush(FLUSH_S)
        assert left == 0
    for each in [*delivered, *last]:
        assert each.error == "", each.error
        found[each.number] = each.partition
    return [found[number] for number in range(len(keys))]


def by_java(address: str, keys: Keys) -> list[int]:
    lines = "".join(f"{topic}\t{key.hex()}\n" for topic, key in keys)
    program = str(jvm.KIT / "KeyedProducer.java")
    done = jvm.run_tool(jvm.CURRENT, program, [address], stdin=lines)
    assert done.returncode == 0, done.stderr[-2000:]
    return [int(line.split("\t")[0]) for line in done.stdout.splitlines()]


@pytest.fixture
def keys(new_topic: MakeTopic) -> Keys:
    """Random keys for topics with 1 to 1,000 partitions; each topic gets an empty key and one of 1 MiB."""
    print(f"KAFKALITE_SEED={SEED}")
    chance = random.Random(SEED)
    found = []
    for partitions in PARTITION_COUNTS:
        topic = new_topic(partitions, **{"max.message.bytes": str(REQUEST_BYTES_MAX)})
        chosen = [chance.randbytes(chance.randint(1, KEY_BYTES_MAX)) for _ in range(KEYS // len(PARTITION_COUNTS) - 2)]
        found += [(topic, key) for key in [b"", chance.randbytes(LARGE_BYTES), *chosen]]
    return found


@pytest.mark.parametrize(
    "foreign", [by_confluent, by_aiokafka, pytest.param(by_java, marks=needs_java)], ids=lambda each: each.__name__
)
def test_keys_have_the_same_partition(address: str, keys: Keys, foreign: Callable[[str, Keys], list[int]]) -> None:
    assert by_sdk(address, keys) == foreign(address, keys)


def test_keys_have_the_same_partition_by_crc32(address: str, keys: Keys) -> None:
    """librdkafka's default; it treats an empty key as none."""
    with_key = [(topic, key) for topic, key in keys if key]
    assert by_sdk(address, with_key, "crc32") == by_confluent(address, with_key, "consistent_random")


@pytest.fixture(scope="module")
def java(group_address: str) -> Iterator[JavaProcess]:
    """Java's consumers of the current version."""
    with JavaProcess(JAVA_VERSIONS[0], group_address) as process:
        yield process


def shared(crowd: Crowd, topic: str, kinds: Sequence[Kind], type: ck.ConsumerGroupType = CLASSIC) -> None:
    """Members of these clients share a group of this type; the first one leads; no committed record is read again."""
    wish, everything = Wish(unused_name("shared"), (topic,)), partitions_of(topic)
    members = [crowd.join(kinds[0], wish)]
    crowd.share(everything, *members)
    members += [crowd.join(kind, wish) for kind in kinds[1:]]
    crowd.share(everything, *members)
    assert type_of(crowd.address, wish.group) == type
    crowd.read(write(crowd.address, topic), *members)
    commit_all(members, everything)
    while len(members) > 1:
        members.pop(0).leave()  # the leader
        crowd.share(everything, *members)
    crowd.read(write(crowd.address, topic, EACH), *members)
    seen = [record for member in crowd.members for record in member.seen]
    assert len(seen) == len(set(seen)), "a committed record is read again"


RANGE = [SDK_RANGE, EAGER, AIO, PYTHON]


@pytest.mark.parametrize("first", range(len(RANGE)))
def test_range_group_with_each_leader(crowd: Crowd, new_group_topic: MakeTopic, first: int) -> None:
    shared(crowd, new_group_topic(PARTITIONS), [*RANGE[first:], *RANGE[:first]])


@pytest.mark.parametrize("kinds", [[SDK_COOPERATIVE, COOPERATIVE, SDK_COOPERATIVE], [COOPERATIVE, SDK_COOPERATIVE]])
def test_cooperative_sticky_group_with_librdkafka(
    crowd: Crowd, new_group_topic: MakeTopic, kinds: Sequence[Kind]
) -> None:
    shared(crowd, new_group_topic(PARTITIONS), kinds)


@pytest.mark.parametrize("kinds", [[SDK_CONSUMER, CONSUMER], [CONSUMER, SDK_CONSUMER, SDK_CONSUMER]])
def test_consumer_protocol_group_with_librdkafka(
    crowd: Crowd, new_group_topic: MakeTopic, kinds: Sequence[Kind]
) -> None:
    shared(crowd, new_group_topic(PARTITIONS), kinds, KIP_848)


@needs_java
@pytest.mark.parametrize(
    ("ours", "how"),
    [(SDK_RANGE, "range"), (SDK_COOPERATIVE, "cooperative-sticky"), (SDK_CONSUMER, "consumer")],
    ids=["range", "cooperative-sticky", "consumer"],
)
def test_group_with_java(crowd: Crowd, new_group_topic: MakeTopic, java: JavaProcess, ours: Kind, how: str) -> None:
    type = KIP_848 if ours is SDK_CONSUMER else CLASSIC
    shared(crowd, new_group_topic(PARTITIONS), [ours, java.kind(how)], type)
    shared(crowd, new_group_topic(PARTITIONS), [java.kind(how), ours, ours], type)
