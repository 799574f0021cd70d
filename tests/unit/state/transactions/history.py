"""Random histories of a shard of `__transaction_state`: clients of both versions, commits that are late, markers,
producer ids, failovers that lose what is not committed, time, and changes of the level. `checks` has the invariants.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.state.effects import ENVIRONMENT, Answer, Effects, Now, SetTimer, TimerName
from kafkalite.state.transactions.machine import TransactionMachine, TransactionSettings
from kafkalite.state.transactions.metadata import TransactionMetadata, TransactionRecord
from kafkalite.state.transactions.requests import (
    AddPartitions,
    AllocateProducerId,
    EndTransaction,
    InitProducerId,
    SendMarkers,
    VerifyPartitions,
)
from kafkalite.state.transactions.states import TransactionState as State
from kafkalite.state.transactions.states import TransactionVersion
from tests.kit.weighted_choice import draw
from tests.unit.state.transactions.checks import Checks, Request

TV1, TV2 = TransactionVersion
WALL_MS = 1_700_000_000_000
IDS = ("orders", "flights")
UNKNOWN = "nobody"
CLIENTS = 3  # of each id
PARTITIONS = [TopicPartition("flights", index) for index in range(3)]
TIMEOUTS = (1_000, 20_000, 60_000)
SETTINGS = TransactionSettings(timeout_max_ms=60_000, expiration_ms=300_000, expiry_interval_ms=50_000)
END_MS = 10_000
ROUNDS = 40


class Pending(NamedTuple):
    """An append that is not committed."""

    end: int  # of the log
    answers: list[Answer]


class Client:
    """A producer: its version, what it knows, and its last EndTxn."""

    def __init__(self, transactional_id: str, version: TransactionVersion) -> None:
        self.transactional_id = transactional_id
        self.version = version
        self.producer = (-1, -1)
        self.last_end: EndTransaction | None = None


def stored(record: TransactionRecord) -> TransactionRecord:
    """The record as it is read again: Kafka does not store the last epoch."""
    return record._replace(last_producer_epoch=-1) if isinstance(record, TransactionMetadata) else record


class History:
    """One shard with its clients.

    Attributes:
        log: all records; those before `committed` are committed.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.checks = Checks()
        self.log: list[TransactionRecord] = []
        self.committed = 0
        self.ms = 0
        self.level = self.dice.choice([TV1, TV2, TV2])
        self.ids = 100
        self.requests = 0
        versions = {each: self.dice.choice([TV1, TV2, TV2]) for each in IDS}  # mixed ones: `test_kafka_rules`
        self.clients = [Client(each, versions[each]) for each in IDS for _ in range(CLIENTS)]
        self._begin_near_the_overflow()
        self._start()

    def _begin_near_the_overflow(self) -> None:
        if self.dice.random() < 0.6:
            epoch = self.dice.randrange(32763, 32767)
            record = TransactionMetadata(IDS[0], 50, epoch, 60_000, WALL_MS, previous_producer_id=50)
            self.checks.applied(record)
            self.log.append(record)
            self.committed = 1
            for client in self.clients[:CLIENTS]:
                client.producer = (50, epoch)

    def _start(self) -> None:
        """A new machine replays the log."""
        self.machine = self.replay()
        self.pending: deque[Pending] = deque()
        self.timers: dict[TimerName, int] = {}
        self.markers: list[SendMarkers] = []
        self.questions: list[AllocateProducerId] = []
        for effects in self.machine.start_timers(self.now):
            self.do(effects)

    def replay(self) -> TransactionMachine:
        machine = TransactionMachine(SETTINGS, lambda: self.level)
        for record in self.log:
            machine.apply(stored(record))
        return machine

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_MS + self.ms)

    # the runtime

    def do(self, effects: Effects) -> None:
        """Append, apply, set timers; answers leave once everything before them is committed."""
        for record in effects.records:
            self.machine.apply(record)
            self.log.append(record)
            self.checks.applied(record)
        for timer in effects.timers:
            self.timers.pop(timer.name, None)
            if isinstance(timer, SetTimer):
                self.timers[timer.name] = timer.at_ms
        if effects.records or self.pending:
            self.pending.append(Pending(len(self.log), effects.answers))
        else:
            self._answer(effects.answers)
        self.questions += effects.questions

    def _answer(self, answers: list[Answer]) -> None:
        for token, result in answers:
            if token is ENVIRONMENT:
                assert isinstance(result, SendMarkers)
                self.checks.markers_sent(result)
                self.markers.append(result)
            elif token is not None:
                self._answered(token, result)

    def _answered(self, token: Any, result: Any) -> None:
        client, request = token
        self.checks.answered(request, result)
        if isinstance(request.value, InitProducerId) and result.error == 0:
            client.producer = (result.producer_id, result.epoch)
        if isinstance(request.value, EndTransaction) and result.error == 0 and result.producer_id >= 0:
            client.producer = (result.producer_id, result.epoch)

    def commit(self) -> None:
        """Some appends are committed."""
        for _ in range(self.dice.randint(1, 3)):
            if self.pending:
                end, answers = self.pending.popleft()
                self.committed = max(self.committed, end)
                self.checks.committed(self.log[: self.committed])
                self._answer(answers)

    def fail_over(self) -> None:
        """The next leader has the committed records, and perhaps others."""
        del self.log[self.dice.randint(self.committed, len(self.log)) :]
        self.committed = len(self.log)
        self.machine.ended()
        self.checks.failed_over(self.log)
        self._start()

    def check_replay(self) -> None:
        """A machine that replays the log equals this one, but for what is not stored."""
        now = {name: stored(each) for name, each in self.machine.transactions.items()}
        assert self.replay().transactions == now

    def check_timers(self) -> None:
        """Each open transaction has a timer that is not too late."""
        for name, metadata in self.machine.transactions.items():
            if metadata.state is State.ONGOING:
                at_ms = self.timers[("transaction", name)]
                assert at_ms <= max(metadata.start_ms - WALL_MS + metadata.timeout_ms, self.ms + 10_000)

    # the environment

    def answer_question(self) -> None:
        if self.questions:
            name = self.questions.pop(self.dice.randrange(len(self.questions))).transactional_id
            if self.dice.random() < 0.8:
                self.ids += 1
                self.do(self.machine.producer_id_allocated(name, self.ids, self.now))
            else:
                self.do(self.machine.producer_id_failed(name, Error.COORDINATOR_NOT_AVAILABLE, self.now))

    def write_markers(self) -> None:
        if self.markers:
            sent = self.markers.pop(self.dice.randrange(len(self.markers)))
            self.do(self.machine.markers_written(sent.transactional_id, sent.producer_id, sent.epoch, self.now))

    def pass_time(self, ms: int = 0) -> None:
        until = self.ms + (ms or self.dice.choice([10, 1_000, 10_000, 70_000]))
        while due := [(at_ms, name) for name, at_ms in self.timers.items() if at_ms <= until]:
            at_ms, name = min(due)
            self.ms = max(self.ms, at_ms)
            del self.timers[name]
            self.do(self.machine.fire_timer(name, self.now))
        self.ms = until

    def change_level(self) -> None:
        self.level = self.dice.choice([TV1, TV2])

    # clients

    def _submit(self, client: Client, value: Any, run: Callable[..., Effects]) -> None:
        self.requests += 1
        token = client, Request(self.requests, value)
        self.checks.asked(token[1])
        self.do(run(value, token, self.now))

    def _client(self) -> Client:
        return self.dice.choice(self.clients)

    def _producer(self, client: Client) -> tuple[int, int]:
        """What the client knows; seldom what another knows, or an id that was never assigned."""
        chance = self.dice.random()
        if chance < 0.9:
            return client.producer
        return self._client().producer if chance < 0.97 else (7, 1)

    def init(self) -> None:
        client = self._client()
        given = self.dice.random() < 0.4 and client.producer[0] >= 0
        request = InitProducerId(client.transactional_id, self.dice.choice(TIMEOUTS))
        if given:
            request = request._replace(producer_id=client.producer[0], epoch=client.producer[1])
        self._submit(client, request, self.machine.init_producer_id)

    def add(self) -> None:
        client = self._client()
        partitions = frozenset(self.dice.sample(PARTITIONS, self.dice.randint(1, 3)))
        request = AddPartitions(client.transactional_id, *self._producer(client), partitions, client.version)
        self._submit(client, request, self.machine.add_partitions)

    def verify(self) -> None:
        client = self._client()
        request = VerifyPartitions(client.transactional_id, *self._producer(client), frozenset(PARTITIONS[:1]))
        self._submit(client, request, self.machine.verify_partitions)

    def end(self) -> None:
        client = self._client()
        name = client.transactional_id if self.dice.random() < 0.95 else UNKNOWN
        commit = self.dice.random() < 0.6
        client.last_end = EndTransaction(name, *self._producer(client), commit, client.version)
        self._submit(client, client.last_end, self.machine.end_transaction)

    def repeat_end(self) -> None:
        client = self._client()
        if client.last_end is not None:
            self._submit(client, client.last_end, self.machine.end_transaction)

    # histories

    def run(self, steps: int) -> None:
        """Random steps; then the clients stop, and every transaction ends."""
        weights: dict[Callable[[], object], int] = {
            self.init: 6, self.add: 14, self.verify: 1, self.end: 12, self.repeat_end: 6, self.commit: 30,
            self.write_markers: 12, self.answer_question: 6, self.pass_time: 3, self.change_level: 1,
            self.fail_over: 2, self.check_replay: 1,
        }  # fmt: skip
        for _ in range(steps):
            draw(self.dice, weights)()
            self.check_timers()
        self.finish()

    def finish(self) -> None:
        """No client is left, and nothing fails any more."""
        for _ in range(ROUNDS):
            while self.pending or self.questions or self.markers:
                self.commit()
                self.answer_question()
                self.write_markers()
            self.pass_time(END_MS)
        open_ones = [each for each in self.machine.transactions.values() if each.state in (1, 2, 3)]
        assert not open_ones, f"these transactions do not end: {open_ones}"
        self.check_replay()
        self.checks.ended()
