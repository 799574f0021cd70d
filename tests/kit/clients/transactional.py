"""confluent-kafka's transactional producer in a process of its own, and a transaction that no coordinator knows."""

from __future__ import annotations

import time

import confluent_kafka as ck
from kafkalite_sdk.blocking import Admin, Connection
from kafkalite_sdk.rpc import Call

from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.records import Builder
from tests.kit.clients.confluent import QUIET
from tests.kit.clients.model import DEADLINE_S
from tests.kit.isolated import Isolated

LAST_VERIFIED_VERSION = 11  # of Produce: later ones add the partition to a transaction
TopicData = ProduceRequest.TopicProduceData


class TransactionalProducer:
    """A producer whose transactions are begun and ended by the test.

    Arguments:
        address: of the broker.
        transactional_id: of the producer.
    """

    def __init__(self, address: str, transactional_id: str) -> None:
        self._address = address
        settings = {"bootstrap.servers": address, "transactional.id": transactional_id, "log_level": QUIET}
        self._producer = ck.Producer(settings)
        self._producer.init_transactions(DEADLINE_S)

    def send(self, topic: str, *values: bytes, partition: int = 0, begin: bool = False) -> None:
        """Send records and wait for their acknowledgements; `begin`: they are the first ones of a transaction."""
        if begin:
            self._producer.begin_transaction()
        for value in values:
            self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(DEADLINE_S) == 0

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        """Commit an offset of partition 0 for a group without members with the transaction."""
        consumer = ck.Consumer({"bootstrap.servers": self._address, "group.id": group, "log_level": QUIET})
        try:
            metadata = consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction([ck.TopicPartition(topic, 0, offset)], metadata, DEADLINE_S)
        finally:
            consumer.close()

    def commit(self) -> None:
        """Commit the transaction."""
        self._producer.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        """Abort the transaction."""
        self._producer.abort_transaction(DEADLINE_S)


def transactional_producer(address: str, transactional_id: str) -> Isolated:
    """Start a `TransactionalProducer` in a process of its own."""
    return Isolated(TransactionalProducer, address, transactional_id)


def hang(address: str, topic: str, producer_id: int, *, partition: int = 0, transactional_id: str = "lost") -> None:
    """Append a transactional batch that no coordinator knows; `transaction.partition.verification.enable` is false."""
    builder = Builder()
    builder.append(int(time.time() * 1000), None, b"hanging")
    batch = builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    data = TopicData.PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicData(name=topic, partition_data=[data])],
    )
    with Admin(address) as admin:
        leader = admin.topics.describe(topic)[topic].partitions[partition].leader
    with Connection(address) as connection:
        replies = connection.poll(DEADLINE_S, Call(request, broker=leader, version_max=LAST_VERIFIED_VERSION))
        (response,) = (each.result() for each in replies)
    (part,) = response.responses[0].partition_responses
    assert part.error_code == 0, part
