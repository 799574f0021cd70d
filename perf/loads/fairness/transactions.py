"""Transactions over as many partitions as a client can add."""

from contextlib import closing

from perf import transaction_wire
from perf.loads.base import Trial
from perf.loads.fairness.base import Hostile
from perf.loads.fairness.client import Client
from perf.loads.fairness.frames import big, big_topics
from perf.loads.fairness.topics import fill
from perf.loads.transactions import ONE_NODE

PARTITIONS = 10_000


class ManyPartitions(Hostile):
    """A transaction is aborted, and another one is committed, each over all partitions, until they are complete."""

    def __init__(self) -> None:
        title = f"two transactions over {PARTITIONS:,} written partitions: added in one request, aborted, committed"
        super().__init__(f"transaction-{PARTITIONS}", title, settings=ONE_NODE)

    def prepare(self, trial: Trial) -> None:
        with Client(trial.broker) as client:
            big_topics(trial, client, PARTITIONS)
            for name, numbers in big(trial, PARTITIONS).items():
                fill(client, name, len(numbers))

    def attack(self, trial: Trial, client: Client) -> None:
        partitions = big(trial, PARTITIONS)
        with closing(transaction_wire.Client(trial.broker, self.name, next(iter(partitions)))) as producer:
            for committed in (False, True):
                producer.add(partitions)
                producer.end(committed=committed)
            producer.add({producer.topic: [0]})  # the former one is complete
            producer.end()


LOADS = (ManyPartitions(),)
