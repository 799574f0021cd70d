"""The state machine of one shard of `__transaction_state`.

A transition is pending in two cases. While markers are written, Kafka has the pending state CompleteCommit or
CompleteAbort: the rows of PrepareCommit and PrepareAbort in `table` are these. While a new producer id is awaited, the
state is still the old one: `COMPARED_FIRST` has what Kafka compares before it answers CONCURRENT_TRANSACTIONS.

Deviation: Kafka also answers CONCURRENT_TRANSACTIONS while a record is not committed. Here the next command sees the
record, and its answer waits for the commit of both.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now, TimerName, Token, answer_only
from kafkalite.state.transactions.actions import TIMEOUT_TIMER, rearm
from kafkalite.state.transactions.counters import TransactionCounters
from kafkalite.state.transactions.metadata import NONE, TransactionDeleted, TransactionMetadata, TransactionRecord
from kafkalite.state.transactions.requests import (
    AddPartitions,
    AllocateProducerId,
    EndTransaction,
    InitProducerId,
    ProducerId,
    VerifyPartitions,
)
from kafkalite.state.transactions.states import OPEN, EpochRelation, TransactionEvent, TransactionVersion
from kafkalite.state.transactions.step import TransactionStep
from kafkalite.state.transactions.table import TABLE

EXPIRY_TIMER = "expiry"
STEP_IDS = 1_000  # of one step of the start, or of the expiry
STEP_CHARACTERS = 100_000  # of the ids of one batch of tombstones
CONCURRENT = KafkaErrorCode.CONCURRENT_TRANSACTIONS
MAPPING = KafkaErrorCode.INVALID_PRODUCER_ID_MAPPING

ALL_RELATIONS = frozenset(EpochRelation)
COMPARED_FIRST: Mapping[tuple[TransactionEvent, TransactionVersion], frozenset[EpochRelation]] = {
    # handleVerifyPartitionsInTransaction: no check of the pending state
    (TransactionEvent.VERIFY, TransactionVersion.TV1): ALL_RELATIONS,
    (TransactionEvent.VERIFY, TransactionVersion.TV2): ALL_RELATIONS,
    # endTransactionWithTV1: id and epoch before the pending state; endTransaction: after it (KAFKA-18464)
    (TransactionEvent.COMMIT, TransactionVersion.TV1): ALL_RELATIONS - {EpochRelation.CURRENT},
    (TransactionEvent.ABORT, TransactionVersion.TV1): ALL_RELATIONS - {EpochRelation.CURRENT},
}
"""The relations whose requests have their own answer while a producer id is awaited; all others get CONCURRENT."""


class TransactionSettings(NamedTuple):
    """The settings of a machine, in ms.

    Arguments:
        timeout_max_ms: `transaction.max.timeout.ms`.
        expiration_ms: `transactional.id.expiration.ms`.
        expiry_interval_ms: `transaction.remove.expired.transaction.cleanup.interval.ms`.
        abort_interval_ms: `transaction.abort.timed.out.transaction.cleanup.interval.ms`: when an abort that found no
            new producer id is tried again. Deviation: timeouts are exact, Kafka looks for them at this interval.
    """

    timeout_max_ms: int = 900_000
    expiration_ms: int = 604_800_000
    expiry_interval_ms: int = 3_600_000
    abort_interval_ms: int = 10_000


class TransactionMachine:
    """All transactional ids of a shard.

    Arguments:
        settings: from the configuration.
        level: returns the version of the finalized level now, for aborts that no client requests.

    Attributes:
        transactions: the state of each id.
        counters: of ended transactions; the coordinator replaces them by those of the broker.
    """

    def __init__(
        self,
        settings: TransactionSettings | None = None,
        level: Callable[[], TransactionVersion] = lambda: TransactionVersion.TV2,
    ) -> None:
        self.settings = settings or TransactionSettings()
        self._level = level
        self.transactions: dict[str, TransactionMetadata] = {}
        self.counters = TransactionCounters()
        self._waiting: dict[str, TransactionStep] = {}
        self._unchecked: list[str] = []  # ids that the current run of the expiry has not checked

    @property
    def version(self) -> TransactionVersion:
        """The version of the finalized level."""
        return self._level()

    # records and timers

    def apply(self, record: TransactionRecord) -> None:
        """Apply a record, in replay and in normal operation."""
        if isinstance(record, TransactionDeleted):
            self.transactions.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = record

    def start_timers(self, now: Now) -> Iterator[Effects]:
        """The log was replayed: continue timeouts and prepared transactions, in steps."""
        effects = Effects()
        effects.set_timer((EXPIRY_TIMER,), now.ms + self.settings.expiry_interval_ms)
        for number, metadata in enumerate(self.transactions.values(), 1):
            if metadata.state in OPEN:  # few loaded ids are
                effects.extend(rearm(metadata, now))
            if number % STEP_IDS == 0:
                yield effects
                effects = Effects()
        yield effects

    def fire_timer(self, name: TimerName, now: Now) -> Effects:
        """The timeout of a transaction, or the interval of expiry."""
        if name[0] == EXPIRY_TIMER:
            return self._expire(now)
        metadata = self.transactions.get(name[1])
        if metadata is None:
            return Effects()
        if name[1] in self._waiting:
            return self._retry_timeout(name[1], now)
        return self._run(self._step(TransactionEvent.TIMEOUT, metadata, now, EpochRelation.NOT_GIVEN))

    def ended(self) -> None:
        """The machine is dropped; the runtime fails the pending requests."""
        self._waiting.clear()

    # requests

    def init_producer_id(self, request: InitProducerId, token: Token, now: Now) -> Effects:
        """Serve InitProducerId with a transactional id (handleInitProducerId)."""
        if not request.transactional_id:
            return answer_only(token, ProducerId(KafkaErrorCode.INVALID_REQUEST))
        if not 0 < request.timeout_ms <= self.settings.timeout_max_ms:
            return answer_only(token, ProducerId(KafkaErrorCode.INVALID_TRANSACTION_TIMEOUT))
        if request.transactional_id in self._waiting:
            return answer_only(token, ProducerId(CONCURRENT))
        metadata = self.transactions.get(request.transactional_id)
        is_given = request.producer_id >= 0 and metadata is not None
        metadata = metadata or TransactionMetadata(
            request.transactional_id, NONE, NONE, request.timeout_ms, now.wall_ms
        )
        relation = EpochRelation.NOT_GIVEN
        if is_given:
            relation = metadata.relation(request.producer_id, request.epoch)
        step = self._step(TransactionEvent.INIT, metadata, now, relation)
        step.token, step.timeout_ms = token, request.timeout_ms
        step.epoch = request.epoch if is_given else NONE
        return self._ask(step) if metadata.producer_id < 0 else self._run(step)

    def add_partitions(self, request: AddPartitions, token: Token, now: Now) -> Effects:
        """Serve AddPartitionsToTxn and AddOffsetsToTxn."""
        step = self._check(TransactionEvent.ADD, request, request.version, now)
        if not isinstance(step, TransactionStep):
            return answer_only(token, step)
        step.token, step.partitions = token, request.partitions
        return self._run(step)

    def verify_partitions(self, request: VerifyPartitions, token: Token, now: Now) -> Effects:
        """Serve AddPartitionsToTxn with `verify_only`."""
        step = self._check(TransactionEvent.VERIFY, request, self.version, now)
        if not isinstance(step, TransactionStep):
            return answer_only(token, dict.fromkeys(request.partitions, step))
        step.token, step.partitions = token, request.partitions
        return self._run(step)

    def end_transaction(self, request: EndTransaction, token: Token, now: Now) -> Effects:
        """Serve EndTxn."""
        event = TransactionEvent.COMMIT if request.commit else TransactionEvent.ABORT
        step = self._check(event, request, request.version, now)
        if not isinstance(step, TransactionStep):
            return answer_only(token, ProducerId(step))
        step.token = token
        return self._run(step)

    # the environment

    def markers_written(self, transactional_id: str, producer_id: int, epoch: int, now: Now) -> Effects:
        """All partitions have the markers of this producer id and epoch, or no longer exist."""
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            return Effects()
        relation = metadata.relation(producer_id, epoch)
        return self._run(self._step(TransactionEvent.MARKERS_WRITTEN, metadata, now, relation))

    def producer_id_allocated(self, transactional_id: str, producer_id: int, now: Now) -> Effects:
        """The answer to `AllocateProducerId`."""
        step = self._waiting.pop(transactional_id, None)
        if step is None:
            return Effects()
        if step.metadata.producer_id < 0:  # a new transactional id
            step.metadata = step.metadata._replace(producer_id=producer_id)
        else:
            step.new_producer_id = producer_id
        step.now, step.needs_producer_id = now, False
        return self._run(step)

    def producer_id_failed(self, transactional_id: str, error: int, now: Now) -> Effects:
        """There is no new producer id now: the request fails, a timeout is tried again."""
        step = self._waiting.pop(transactional_id, None)
        if step is None:
            return Effects()
        if step.token is None:
            return self._retry_timeout(transactional_id, now)
        return answer_only(step.token, ProducerId(error))

    # parts of the above

    def _check(
        self,
        event: TransactionEvent,
        request: AddPartitions | VerifyPartitions | EndTransaction,
        version: TransactionVersion,
        now: Now,
    ) -> TransactionStep | KafkaErrorCode:
        if not request.transactional_id:
            return KafkaErrorCode.INVALID_REQUEST
        metadata = self.transactions.get(request.transactional_id)
        if metadata is None:
            return MAPPING
        step = self._step(event, metadata, now, metadata.relation(request.producer_id, request.epoch))
        step.version = version
        if request.transactional_id in self._waiting and step.relation not in COMPARED_FIRST.get((event, version), ()):
            return CONCURRENT
        return step

    def _step(
        self, event: TransactionEvent, metadata: TransactionMetadata, now: Now, relation: EpochRelation
    ) -> TransactionStep:
        return TransactionStep(event, metadata, relation, self.version, now)

    def _run(self, step: TransactionStep) -> Effects:
        row = TABLE[step.metadata.state, step.event, step.relation, step.version]
        if row.action is None:
            return answer_only(step.token, _refusal(step, row.error))
        row.action(step)
        self.counters.count(step)
        return self._ask(step) if step.needs_producer_id else step.effects

    def _ask(self, step: TransactionStep) -> Effects:
        name = step.metadata.transactional_id
        self._waiting[name] = step
        effects = self._retry_timeout(name, step.now) if step.event is TransactionEvent.TIMEOUT else Effects()
        effects.questions.append(AllocateProducerId(name))
        return effects

    def _expire(self, now: Now) -> Effects:
        """Check the next ids, and write tombstones of the idle ones (removeExpiredTransactionalIds)."""
        unchecked = self._unchecked = self._unchecked or list(self.transactions)
        effects, characters = Effects(), 0
        before_ms = now.wall_ms - self.settings.expiration_ms
        for _ in range(min(STEP_IDS, len(unchecked))):
            transactional_id = unchecked.pop()
            metadata = self.transactions.get(transactional_id)
            if metadata is None or metadata.updated_ms > before_ms or transactional_id in self._waiting:
                continue
            effects.extend(self._run(self._step(TransactionEvent.EXPIRED, metadata, now, EpochRelation.NOT_GIVEN)))
            characters += len(transactional_id)
            if characters > STEP_CHARACTERS:
                break
        effects.set_timer((EXPIRY_TIMER,), now.ms + (0 if unchecked else self.settings.expiry_interval_ms))
        return effects

    def _retry_timeout(self, transactional_id: str, now: Now) -> Effects:
        effects = Effects()
        effects.set_timer((TIMEOUT_TIMER, transactional_id), now.ms + self.settings.abort_interval_ms)
        return effects


def _refusal(step: TransactionStep, error: int) -> object:
    if step.event is TransactionEvent.ADD:
        return error
    if step.event is TransactionEvent.VERIFY:
        return dict.fromkeys(step.partitions, error)
    return ProducerId(error)
