"""The invariants of transactions, from the records, answers and markers of a history.

1. The ids and epochs of a transactional id grow; no epoch above 32766 reaches a client.
2. A transaction has one decision; its markers carry it, to the partitions that were added, after it is committed.
3. A fence increments the epoch. A session of a producer has an epoch that none had before.
4. EndTxn succeeds only if that transaction has this outcome, and returns the id and epoch that follow. So does a retry.
5. A repeated InitProducerId (KIP-360) returns what the first one returned.
6. Each request is answered at most once; each that is not lost in a failover is answered.
"""

from typing import Any, NamedTuple

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.transactions.metadata import EPOCH_LAST, TransactionMetadata, TransactionRecord
from kafkalite.state.transactions.requests import AddPartitions, EndTransaction, InitProducerId, SendMarkers
from kafkalite.state.transactions.states import TransactionState as State
from kafkalite.state.transactions.states import TransactionVersion

IDLE = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
BEFORE = {
    State.EMPTY: IDLE,
    State.ONGOING: (*IDLE, State.ONGOING),
    State.PREPARE_COMMIT: (State.ONGOING,),
    State.PREPARE_ABORT: (*IDLE, State.ONGOING),
    State.COMPLETE_COMMIT: (State.PREPARE_COMMIT,),
    State.COMPLETE_ABORT: (State.PREPARE_ABORT,),
}

Producer = tuple[str, int, int]


class Request(NamedTuple):
    """A request of a client."""

    number: int
    value: Any


class Decision(NamedTuple):
    """What was decided with the id and epoch of a client, and what follows."""

    commit: bool
    next_producer: tuple[int, int]
    is_tv2: bool


class Checks:
    """What was recorded, answered and sent."""

    def __init__(self) -> None:
        self._current: dict[str, TransactionMetadata] = {}
        self._decisions: dict[Producer, list[Decision]] = {}  # of committed records
        self._last: dict[str, Decision] = {}
        self._open: set[tuple[Producer, frozenset[Any]]] = set()  # committed partitions of transactions
        self._prepared: set[TransactionMetadata] = set()  # committed
        self._granted: dict[Producer, int] = {}  # to the session that this request began
        self._sessions: dict[Producer, tuple[int, int]] = {}
        self._waiting: set[int] = set()
        self._checked = 0

    # records

    def applied(self, record: TransactionRecord) -> None:
        """A record was appended."""
        name = record.transactional_id
        old = self._current.get(name)
        if not isinstance(record, TransactionMetadata):
            assert old is not None and old.state in IDLE, f"expired in {old}"
            del self._current[name]
            return
        self._current[name] = record
        if old is not None:
            assert old.state in BEFORE[record.state], f"{old} -> {record}"
            self._check_ids(old, record)
            self._check_partitions(old, record)

    def _check_ids(self, old: TransactionMetadata, new: TransactionMetadata) -> None:
        if new.producer_id == old.producer_id:
            assert new.producer_epoch in (old.producer_epoch, old.producer_epoch + 1), f"{old} -> {new}"
        else:
            assert new.producer_id > old.producer_id and new.producer_epoch == 0, f"{old} -> {new}"
            assert new.previous_producer_id == old.producer_id
        if new.producer_epoch > EPOCH_LAST:
            kept = new.version == 0 or new.state not in PREPARED
            assert kept or new.next_producer_id >= 0, f"no producer id follows: {new}"
        if old.state in PREPARED:
            follows = (old.next_producer_id, 0) if old.next_producer_id >= 0 else (old.producer_id, old.producer_epoch)
            assert (new.producer_id, new.producer_epoch) == follows, f"{old} -> {new}"

    def _check_partitions(self, old: TransactionMetadata, new: TransactionMetadata) -> None:
        if new.state in PREPARED:
            assert new.partitions == old.partitions
            if new.version == TransactionVersion.TV2:
                assert new.producer_epoch > old.producer_epoch
        elif new.state is State.ONGOING:
            assert new.partitions >= old.partitions and new.partitions
        else:
            assert not new.partitions

    def committed(self, log: list[TransactionRecord]) -> None:
        """The log is committed up to here."""
        known = {record.transactional_id: record for record in log[: self._checked]}
        for record in log[self._checked :]:
            if isinstance(record, TransactionMetadata):
                self._record_committed(known.get(record.transactional_id), record)
            known[record.transactional_id] = record
        self._checked = len(log)

    def _record_committed(self, old: TransactionRecord | None, new: TransactionMetadata) -> None:
        producer = new.transactional_id, new.producer_id, new.producer_epoch
        if new.state is State.ONGOING:
            self._open.add((producer, new.partitions))
        if new.state in PREPARED and isinstance(old, TransactionMetadata):
            self._prepared.add(new._replace(last_producer_epoch=-1))
            follows = (new.next_producer_id, 0) if new.next_producer_id >= 0 else (new.producer_id, new.producer_epoch)
            is_tv2 = new.producer_epoch > old.producer_epoch
            decision = Decision(new.state is State.PREPARE_COMMIT, follows, is_tv2)
            self._decisions.setdefault((*producer[:2], old.producer_epoch), []).append(decision)
            self._last[new.transactional_id] = decision

    def failed_over(self, log: list[TransactionRecord]) -> None:
        """This is the log of the next leader: all of it is committed. Requests without an answer are lost."""
        self._waiting.clear()
        self.committed(log)
        self._current = {}
        for record in log:
            if isinstance(record, TransactionMetadata):
                self._current[record.transactional_id] = record
            else:
                del self._current[record.transactional_id]

    # markers

    def markers_sent(self, sent: SendMarkers) -> None:
        """Markers leave the coordinator."""
        state = State.PREPARE_COMMIT if sent.commit else State.PREPARE_ABORT
        found = [
            each
            for each in self._prepared
            if (each.transactional_id, each.producer_id, each.producer_epoch, each.state)
            == (sent.transactional_id, sent.producer_id, sent.epoch, state)
        ]
        assert any(each.partitions == sent.partitions for each in found), f"no committed decision for {sent}"
        if sent.version is TransactionVersion.TV2:
            key = sent.transactional_id, sent.producer_id, sent.epoch - 1
            assert sum(each.is_tv2 for each in self._decisions[key]) == 1, f"not one decision: {self._decisions[key]}"

    # answers

    def asked(self, request: Request) -> None:
        self._waiting.add(request.number)

    def answered(self, request: Request, result: Any) -> None:
        """A response leaves the coordinator."""
        assert request.number in self._waiting, f"{request} was answered twice"
        self._waiting.discard(request.number)
        value = request.value
        if isinstance(value, InitProducerId) and result.error == 0:
            self._session_begun(value, result, request.number)
        if isinstance(value, AddPartitions) and result == 0:
            producer = value.transactional_id, value.producer_id, value.epoch
            assert any(each == producer and value.partitions <= found for each, found in self._open)
        if isinstance(value, EndTransaction):
            self._ended(value, result)

    def _session_begun(self, value: InitProducerId, result: Any, number: int) -> None:
        granted = value.transactional_id, result.producer_id, result.epoch
        assert 0 <= result.epoch <= EPOCH_LAST
        if value.producer_id < 0:
            assert granted not in self._granted, f"two sessions have {granted}"
            self._granted[granted] = number
            return
        given = value.transactional_id, value.producer_id, value.epoch
        first = self._sessions.setdefault(given, granted[1:])
        assert first == granted[1:], f"a retry of {given} returns {granted}, before {first}"
        self._granted[granted] = number

    def _ended(self, value: EndTransaction, result: Any) -> None:
        producer = value.transactional_id, value.producer_id, value.epoch
        decisions = self._decisions.get(producer, [])
        if result.error == 0 and value.version is TransactionVersion.TV1:  # the last transaction, of either version
            assert self._last[value.transactional_id].commit == value.commit, f"{value}: {decisions}"
        elif result.error == 0:
            assert decisions, f"{value} succeeds, but nothing was decided"
            assert decisions[-1].commit == value.commit, f"{value}: {decisions}"
            assert (result.producer_id, result.epoch) == decisions[-1].next_producer
            assert result.epoch <= EPOCH_LAST
        if not decisions and producer not in self._granted and value.transactional_id not in self._current:
            assert result.error == Error.INVALID_PRODUCER_ID_MAPPING

    def ended(self) -> None:
        """The history is over."""
        assert not self._waiting, f"{len(self._waiting)} requests have no answer"
