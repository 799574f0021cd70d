"""Records of transactions on Apache Kafka, sent by librdkafka in a process that can be killed."""

from confluent_kafka import Producer

from tests.kit.isolated import dropped_later, killable

DEADLINE_S = 30.0


@killable
def send_transactions(address: str, topic: str) -> None:
    """Append c0, c1 (committed), a0 (aborted), c2 (committed); each transaction ends with a control record.

    Offsets: c0 0, c1 1, control 2, a0 3, control 4, c2 5, control 6.
    """
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic})
    dropped_later(producer)
    producer.init_transactions(DEADLINE_S)
    for values, end in (
        ((b"c0", b"c1"), producer.commit_transaction),
        ((b"a0",), producer.abort_transaction),
        ((b"c2",), producer.commit_transaction),
    ):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(DEADLINE_S)  # an abort discards records that were not sent
        end(DEADLINE_S)
