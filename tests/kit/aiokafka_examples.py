"""Programs after the examples in aiokafka's documentation: `python -m tests.kit.aiokafka_examples ADDRESS SUFFIX`.

SUFFIX is a part of the topics and groups. It prints the module of the client and then, as JSON, what each program has
found, which is the same for every client and broker.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

DEADLINE_S = 60
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]


class Cluster:
    """Names for one run, and clients for its address."""

    def __init__(self, address: str, suffix: str) -> None:
        self.address, self.suffix = address, suffix

    async def topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic."""
        topic = f"{name}-{self.suffix}"
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, partitions, 1)])
        finally:
            await admin.close()
        return topic

    def producer(self, **options: Any) -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=self.address, **options)

    def consumer(self, *topics: str, group: str | None = None, **options: Any) -> AIOKafkaConsumer:
        group_id = None if group is None else f"{group}-{self.suffix}"
        options = {"auto_offset_reset": "earliest", **options}
        return AIOKafkaConsumer(*topics, bootstrap_servers=self.address, group_id=group_id, **options)

    async def fill(self, topic: str, partitions: int) -> None:
        """One word after the other into one partition after the other."""
        async with self.producer() as producer:
            for number, word in enumerate(WORDS):
                await producer.send_and_wait(topic, word.encode(), partition=number % partitions)


async def serializers_and_compression(cluster: Cluster) -> Any:
    """Values are JSON documents in compressed batches."""
    topic = await cluster.topic("documents")
    producer = cluster.producer(
        value_serializer=lambda value: json.dumps(value).encode(), key_serializer=str.encode, compression_type="gzip"
    )
    await producer.start()
    try:
        for number, word in enumerate(WORDS):
            await producer.send(topic, {"word": word, "number": number}, key=word)
    finally:
        await producer.stop()
    consumer = cluster.consumer(topic, value_deserializer=json.loads, key_deserializer=bytes.decode)
    found = []
    async with consumer:
        async for record in consumer:
            found.append([record.key, record.value["number"]])
            if len(found) == len(WORDS):
                break
    return found


async def batches_by_hand(cluster: Cluster) -> Any:
    """Records are put into batches whose partition and end the program chooses."""
    topic = await cluster.topic("batches", 2)
    sizes = []
    async with cluster.producer(max_batch_size=4096) as producer:
        numbers = iter(range(100))
        number = next(numbers, None)
        while number is not None:
            batch = producer.create_batch()
            while number is not None:
                if batch.append(key=b"%d" % number, value=bytes(100), timestamp=None) is None:
                    break
                number = next(numbers, None)
            sizes.append(batch.record_count())
            await producer.send_batch(batch, topic, partition=len(sizes) % 2)
    async with cluster.consumer(topic) as consumer:
        found: Counter[int] = Counter()
        while found.total() < 100:
            found[(await consumer.getone()).partition] += 1
    return [found == Counter({0: sum(sizes[1::2]), 1: sum(sizes[::2])}), len(sizes) > 2, sum(sizes)]


async def custom_partitioner(cluster: Cluster) -> Any:
    """A function of the program chooses the partition by the first letter of the key."""
    topic = await cluster.topic("letters", 4)

    def by_letter(key: bytes, partitions: list[int], available: list[int]) -> int:
        return partitions[key[0] % len(partitions)]

    async with cluster.producer(partitioner=by_letter) as producer:
        sent = [await producer.send_and_wait(topic, b"value", key=word.encode()) for word in WORDS]
    return [each.partition for each in sent]


async def manual_commit(cluster: Cluster) -> Any:
    """Positions are committed after the records were handled; the next consumer of the group continues there."""
    topic = await cluster.topic("by-hand")
    await cluster.fill(topic, 1)
    partition, found = TopicPartition(topic, 0), []
    for _ in range(2):
        async with cluster.consumer(topic, group="by-hand", enable_auto_commit=False) as consumer:
            found.append([(await consumer.getone()).value.decode() for _ in range(3)])
            await consumer.commit({partition: (await consumer.position(partition), "handled")})
            found.append(await consumer.committed(partition))
            await consumer.getone()  # it is not committed
    return found


async def batches_of_getmany(cluster: Cluster) -> Any:
    """Several records of each partition are handled together, then committed."""
    topic = await cluster.topic("many", 2)
    await cluster.fill(topic, 2)
    found: dict[int, list[str]] = {0: [], 1: []}
    async with cluster.consumer(topic, group="many", enable_auto_commit=False, max_poll_records=3) as consumer:
        while sum(map(len, found.values())) < len(WORDS):
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                assert 0 < len(records) <= 3
                found[partition.partition] += [record.value.decode() for record in records]
                await consumer.commit({partition: records[-1].offset + 1})
        ends = [await consumer.committed(TopicPartition(topic, number)) for number in range(2)]
    return [found[0], found[1], ends]


async def group_of_two(cluster: Cluster) -> Any:
    """Two members share the partitions of a topic and all of its records."""
    topic = await cluster.topic("shared", 4)
    await cluster.fill(topic, 4)
    found: set[str] = set()
    members = [cluster.consumer(topic, group="shared", heartbeat_interval_ms=100) for _ in range(2)]

    async def consume(member: AIOKafkaConsumer) -> None:
        async for record in member:
            found.add(record.value.decode())

    tasks = []
    for member in members:
        await member.start()
        tasks.append(asyncio.ensure_future(consume(member)))
    while found < set(WORDS) or [len(member.assignment()) for member in members] != [2, 2]:
        await asyncio.wait(tasks, timeout=0.02)
    disjoint = members[0].assignment().isdisjoint(members[1].assignment())
    for member in members:
        await member.stop()
    await asyncio.gather(*tasks)
    return [sorted(found), disjoint]


class Counts(ConsumerRebalanceListener):
    """State of a program by partition, which moves with it: saved when it is revoked, loaded when it is assigned."""

    def __init__(self, consumer: AIOKafkaConsumer, saved: dict[TopicPartition, Any]) -> None:
        self.consumer, self.saved = consumer, saved
        self.counts: dict[TopicPartition, Counter[str]] = {}
        self.offsets: dict[TopicPartition, int] = {}

    def add(self, partition: TopicPartition, records: list[Any]) -> None:
        self.counts[partition].update(record.value.decode() for record in records)
        self.offsets[partition] = records[-1].offset + 1

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        for partition in revoked:
            self.saved[partition] = self.offsets.pop(partition), self.counts.pop(partition)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        for partition in assigned:
            self.offsets[partition], self.counts[partition] = self.saved.get(partition, (0, Counter()))
            self.consumer.seek(partition, self.offsets[partition])


async def local_state(cluster: Cluster) -> Any:
    """Records are counted exactly once although nothing is committed: offsets are saved with the counts."""
    topic = await cluster.topic("counted", 2)
    saved: dict[TopicPartition, Any] = {}
    for part in (1, 2):
        await cluster.fill(topic, 2)
        consumer = cluster.consumer(group="counted", enable_auto_commit=False)
        state = Counts(consumer, saved)
        consumer.subscribe([topic], listener=state)
        async with consumer:
            while sum(state.offsets.values()) < part * len(WORDS):
                for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                    state.add(partition, records)
            await state.on_partitions_revoked(set(state.offsets))
    return [[offset, sorted(counts.items())] for _, (offset, counts) in sorted(saved.items())]


async def ssl_produce_and_consume(cluster: Cluster, cafile: str) -> Any:
    """Both clients connect by TLS. Not part of `main`: it needs another listener."""
    from aiokafka.helpers import create_ssl_context

    secure: Any = {"security_protocol": "SSL", "ssl_context": create_ssl_context(cafile=cafile)}
    topic = f"secure-{cluster.suffix}"
    async with cluster.producer(**secure) as producer:
        sent = [(await producer.send_and_wait(topic, word.encode())).offset for word in WORDS]
    async with cluster.consumer(topic, **secure) as consumer:
        return [sent, [(await consumer.getone()).value.decode() for _ in WORDS]]


EXAMPLES: list[Callable[[Cluster], Awaitable[Any]]] = [
    serializers_and_compression,
    batches_by_hand,
    custom_partitioner,
    manual_commit,
    batches_of_getmany,
    group_of_two,
    local_state,
]
EXPECTED: dict[str, Any] = {
    "serializers_and_compression": [[word, number] for number, word in enumerate(WORDS)],
    "batches_by_hand": [True, True, 100],
    "custom_partitioner": [ord(word[0]) % 4 for word in WORDS],
    "manual_commit": [WORDS[:3], 3, WORDS[3:6], 6],
    "batches_of_getmany": [WORDS[::2], WORDS[1::2], [4, 4]],
    "group_of_two": [WORDS, True],
    "local_state": [[8, [[word, 2] for word in WORDS[first::2]]] for first in range(2)],
}

EXPECTED_WITH_TLS = [list(range(len(WORDS))), WORDS]


async def main(address: str, suffix: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        found = await asyncio.gather(*(each(Cluster(address, suffix)) for each in EXAMPLES))
    print(aiokafka.__name__, json.dumps(dict(zip((each.__name__ for each in EXAMPLES), found, strict=True))))


async def main_with_tls(address: str, suffix: str, cafile: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        print(aiokafka.__name__, json.dumps(await ssl_produce_and_consume(Cluster(address, suffix), cafile)))


async def found_by(module: str, *arguments: str) -> Any:
    """Run the programs in a process of their own, with a client; return what they have found.

    Arguments:
        module: of the client, "aiokafka" or the one that takes its place.
        arguments: of the command line.
    """
    runner = [] if module == "aiokafka" else ["-m", module]
    command = [sys.executable, *(runner or ["-m"]), "tests.kit.aiokafka_examples", *arguments]
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(*command, **pipes)  # type: ignore[arg-type]
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    name, found = output.decode().splitlines()[-1].split(" ", 1)
    assert name == module
    return json.loads(found)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]) if len(sys.argv) == 3 else main_with_tls(*sys.argv[1:]))
