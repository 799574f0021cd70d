"""Random sequences of one transactional id: the machine answers as Apache Kafka does, and has the same record.

Each prints its seed; `KAFKALITE_SEED=n` repeats it. `make torture` runs many more.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.model import TopicPartition
from kafkalite.state.effects import ENVIRONMENT, Effects, Now
from kafkalite.state.transactions.machine import TransactionMachine
from kafkalite.state.transactions.metadata import TransactionMetadata
from kafkalite.state.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerId,
    VerifyPartitions,
)
from kafkalite.state.transactions.states import TransactionState as State
from kafkalite.state.transactions.states import TransactionVersion
from tests.kit.seeds import seeds_of
from tests.kit.weighted_choice import draw
from tests.unit.state.transactions.kafka_rules import LAST, ExhaustedError, FencedError, KafkaTransaction, Result

TV1, TV2 = TransactionVersion
STEPS = 60
SEQUENCES = 300
FENCED = 90
PARTITIONS = [TopicPartition("flights", index) for index in range(3)]


class Sequence:
    """One transactional id in a machine and in the oracle."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self._ids = 100
        self.version = self.dice.choice([TV1, TV2])
        self.machine = TransactionMachine(level=lambda: self.version)
        self.kafka = KafkaTransaction(lambda: self._ids + 1)
        self.known: list[tuple[int, int]] = [(5, 3)]
        if self.dice.random() < 0.5:
            self._begin_near_the_overflow()

    def _begin_near_the_overflow(self) -> None:
        epoch = self.dice.randrange(32760, 32767)
        self.machine.apply(TransactionMetadata("t", 50, epoch, 60_000, 0, previous_producer_id=50))
        self.kafka.exists, self.kafka.producer_id, self.kafka.epoch = True, 50, epoch
        self.kafka.previous_id = 50
        self.known.append((50, epoch))

    def step(self) -> None:
        weights: dict[Callable[[], object], int] = {
            self.init: 3, self.add: 5, self.verify: 1, self.end: 6, self.complete: 5, self.time_out: 1, self.level: 1,
        }  # fmt: skip
        draw(self.dice, weights)()
        metadata = self.machine.transactions.get("t")
        assert (metadata is not None) == self.kafka.exists
        if metadata is not None:
            ids = metadata.producer_id, metadata.producer_epoch, metadata.previous_producer_id
            rest = metadata.next_producer_id, metadata.last_producer_epoch, metadata.partitions, metadata.version == TV2
            assert (metadata.state, *ids, *rest) == self.kafka.values
            self.known.append((metadata.producer_id, metadata.producer_epoch))

    def producer(self) -> tuple[int, int]:
        """Mostly the current id and epoch, else an earlier or an invented one; no client gets 32767."""
        producer_id, epoch = self.known[-1] if self.dice.random() < 0.7 else self.dice.choice(self.known)
        return producer_id, min(32766, max(0, epoch + self.dice.choices([0, -1, 1, -2], [12, 3, 1, 1])[0]))

    def run(self, effects: Effects) -> list[Any]:
        """Apply effects, answer the question for a producer id at once; returns the answers."""
        answers = []
        while True:
            for record in effects.records:
                self.machine.apply(record)
            answers += [each.result for each in effects.answers if each.token is not ENVIRONMENT]
            if not effects.questions:
                return answers
            effects = self.machine.producer_id_allocated("t", self._ids + 1, Now(0, 0))

    def compare(self, effects: Effects, expected: Callable[[], Result | int]) -> None:
        answers = self.run(effects)
        try:
            wanted = expected()
        except FencedError:
            wanted = Result(FENCED)
        if isinstance(wanted, Result) and wanted.epoch > LAST:  # a deviation
            wanted = Result(FENCED)
        answer = answers[0]
        assert (answer if not isinstance(answer, ProducerId) else Result(*answer)) == wanted
        self._ids += 1

    def init(self) -> None:
        given = self.dice.random() < 0.5
        producer = self.producer()
        request = InitProducerId("t", 60_000, *producer) if given else InitProducerId("t", 60_000)
        before = self.kafka.values
        try:
            answers = self.machine.init_producer_id(request, "token", Now(0, 0))
            self.compare(
                answers, lambda: self.kafka.init(producer if given else None, level_2=self.machine.version is TV2)
            )
        except ExhaustedError:  # the deviation of these rows: fenced, or the current epoch again
            assert self.kafka.values == before
            self.kafka.state, self.kafka.partitions = self.machine.transactions["t"].state, frozenset()

    def add(self) -> None:
        producer, tv2 = self.producer(), self.dice.random() < 0.6
        partitions = frozenset(self.dice.sample(PARTITIONS, self.dice.randint(1, 3)))
        request = AddPartitions("t", *producer, partitions, TV2 if tv2 else TV1)
        effects = self.machine.add_partitions(request, "token", Now(0, 0))
        self.compare(effects, lambda: self.kafka.add(producer, partitions, tv2=tv2))

    def verify(self) -> None:
        producer, partition = self.producer(), self.dice.choice(PARTITIONS)
        effects = self.machine.verify_partitions(
            VerifyPartitions("t", *producer, frozenset({partition})), "token", Now(0, 0)
        )
        assert self.run(effects) == [{partition: self.kafka.verify(producer, partition)}]

    def end(self) -> None:
        producer, commit = self.producer(), self.dice.random() < 0.5
        version = self.dice.choice([TV1, TV2, TV2])
        effects = self.machine.end_transaction(EndTransaction("t", *producer, commit, version), "token", Now(0, 0))
        end = self.kafka.end_tv2 if version is TV2 else self.kafka.end_tv1
        self.compare(effects, lambda: end(producer, commit=commit))

    def complete(self) -> None:
        if self.kafka.exists:
            self.run(self.machine.markers_written("t", self.kafka.producer_id, self.kafka.epoch, Now(0, 0)))
            self.kafka.markers_written()

    def time_out(self) -> None:
        self.run(self.machine.fire_timer(("transaction", "t"), Now(0, 0)))
        self.kafka.timed_out(level_2=self.machine.version is TV2)
        self._ids += 1

    def level(self) -> None:
        if self.kafka.state is not State.ONGOING or self.kafka.epoch < 32760:
            self.version = self.dice.choice([TV1, TV2])


def run_sequence(seed: int) -> None:
    try:
        sequence = Sequence(seed)
        for _ in range(STEPS):
            sequence.step()
    except BaseException:
        print(f"KAFKALITE_SEED={seed}")
        raise


def test_the_machine_answers_as_kafka_does() -> None:
    for seed in seeds_of(SEQUENCES):
        run_sequence(seed)


@pytest.mark.torture
@pytest.mark.long_form
def test_the_machine_answers_as_kafka_does_in_many_sequences() -> None:
    for seed in seeds_of(20_000):
        run_sequence(seed)
