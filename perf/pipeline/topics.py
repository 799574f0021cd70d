"""The records that the rows read: values of events, which compress as those do."""

import random
from functools import cache

import pyarrow
from kafkalite_sdk.admin import LATEST, NewTopic
from kafkalite_sdk.blocking import Admin, Producer

from kafkalite.model import TopicPartition
from perf.errors import VerificationError
from perf.pipeline.job import PARTITIONS

SEED = 15
DIFFERENT = 8_192  # values; they are repeated at a distance that no compression sees
WORDS = (
    *("order", "customer", "delivery", "address", "invoice", "payment", "article", "discount", "warehouse"),
    *("shipment", "return", "carrier", "country", "quantity", "currency", "account", "status", "reason"),
)


@cache
def values(size: int) -> pyarrow.Array:
    """Different JSON objects of `size` bytes each."""
    chance = random.Random(SEED)
    return pyarrow.array([_value(chance, number, size) for number in range(DIFFERENT)], pyarrow.binary())


def _value(chance: random.Random, number: int, size: int) -> bytes:
    text = f'{{"id":{number},"amount":{chance.randrange(10**6) / 100},"at":"{chance.randrange(10**9, 2 * 10**9)}"'
    text += f',"user":"{chance.randbytes(4).hex()}","note":"'
    while len(text) < size:
        text += f"{chance.choice(WORDS)} {chance.randrange(10**5)} "
    return (text[: size - 2] + '"}').encode()


def fill(address: str, topic: str, records: int, size: int) -> None:
    """Create a topic and append records with keys of 16 bytes, in batches of about 256 KiB."""
    create(address, topic)
    pool, keys = values(size), pyarrow.array([b"%016x" % row for row in range(DIFFERENT)], pyarrow.binary())
    partitions = pyarrow.array([row % PARTITIONS for row in range(DIFFERENT)], pyarrow.int32())
    with Producer(address, linger_ms=50, batch_size=256 << 10, max_request_size=4 << 20) as producer:
        for first in range(0, records, DIFFERENT):
            rows = min(DIFFERENT, records - first)
            table = pyarrow.table({"key": keys[:rows], "value": pool[:rows], "partition": partitions[:rows]})
            producer.send_columns(topic, table).result()
    expect(address, topic, records)


def create(address: str, topic: str) -> None:
    """Create an empty topic."""
    with Admin(address) as admin:
        admin.topics.create(NewTopic(topic, partitions=PARTITIONS)).check()


def delete(address: str, topic: str) -> None:
    """Delete a topic, so that repetitions do not fill the disk."""
    with Admin(address) as admin:
        admin.topics.delete(topic).check()


def end_offsets(address: str, topic: str) -> int:
    """The sum of the log end offsets."""
    with Admin(address) as admin:
        names = dict.fromkeys((TopicPartition(topic, each) for each in range(PARTITIONS)), LATEST)
        return sum(each.offset for each in admin.partitions.offsets(names).check().values())


def expect(address: str, topic: str, records: int) -> None:
    """Verify that a topic has so many records. Raises VerificationError."""
    if (found := end_offsets(address, topic)) != records:
        raise VerificationError(f"{topic} has {found} records, expected {records}")
