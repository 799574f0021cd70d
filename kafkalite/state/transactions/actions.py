"""The actions of the transition table: each writes the record of a step and has its effects.

Source: TransactionMetadata.java (`prepare...`) of Apache Kafka.
"""

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.effects import Effects, Now
from kafkalite.state.transactions.metadata import (
    EPOCH_LAST,
    EPOCH_MAX,
    NONE,
    TransactionDeleted,
    TransactionMetadata,
)
from kafkalite.state.transactions.partitions import NO_PARTITIONS
from kafkalite.state.transactions.requests import ProducerId, SendMarkers
from kafkalite.state.transactions.states import TransactionState, TransactionVersion
from kafkalite.state.transactions.step import TransactionStep

State = TransactionState
TV1, TV2 = TransactionVersion
TIMEOUT_TIMER = "transaction"


def ignore(step: TransactionStep) -> None:
    """A timer or a completion that comes too late."""


def start_session(step: TransactionStep) -> None:
    """prepareIncrementProducerEpoch, or prepareProducerIdRotation once the epochs are exhausted."""
    old = step.metadata
    if old.is_exhausted and step.new_producer_id < 0:
        step.needs_producer_id = True
        return
    last = NONE if step.epoch < 0 else old.producer_epoch
    if old.is_exhausted:
        _initialize(step, step.new_producer_id, 0, last, old.producer_id)
    else:
        _initialize(step, old.producer_id, old.producer_epoch + 1, last, old.producer_id)


def repeat_session(step: TransactionStep) -> None:
    """A retry of InitProducerId (KIP-360): the current id and epoch.

    Deviation: the previous id is kept, so that several retries have the same result, and an exhausted epoch is
    returned (Kafka raises an exception).
    """
    old = step.metadata
    if step.epoch != old.last_producer_epoch:
        step.effects.answer(step.token, ProducerId(KafkaErrorCode.PRODUCER_FENCED))
    else:
        _initialize(step, old.producer_id, old.producer_epoch, step.epoch, old.previous_producer_id)


def begin(step: TransactionStep) -> None:
    """prepareAddPartitions of a new transaction."""
    _add(step, step.now.wall_ms)
    _set_timeout(step, step.metadata.timeout_ms)


def add(step: TransactionStep) -> None:
    """prepareAddPartitions of the open transaction; nothing is written for partitions that it has."""
    if step.partitions <= step.metadata.partitions:
        step.effects.answer(step.token, KafkaErrorCode.NONE)
    else:
        _add(step, step.metadata.start_ms)


def verify(step: TransactionStep) -> None:
    """An error code per partition (KIP-890, part 1)."""
    errors = {
        each: KafkaErrorCode.NONE if each in step.metadata.partitions else KafkaErrorCode.TRANSACTION_ABORTABLE
        for each in step.partitions
    }
    step.effects.answer(step.token, errors)


def commit(step: TransactionStep) -> None:
    """prepareAbortOrCommit."""
    _end(step, State.PREPARE_COMMIT)


def abort(step: TransactionStep) -> None:
    """prepareAbortOrCommit."""
    _end(step, State.PREPARE_ABORT)


def fence(step: TransactionStep) -> None:
    """prepareFenceProducerEpoch, then an abort: the epoch is incremented once (KAFKA-19367)."""
    if (prepared := _prepare(step, State.PREPARE_ABORT, step.metadata.producer_epoch + 1)) and step.token is not None:
        step.effects.answer(step.token, ProducerId(KafkaErrorCode.CONCURRENT_TRANSACTIONS))
    if prepared and step.version is TV1:  # a later InitProducerId of the old producer is fenced
        step.effects.records[-1] = prepared._replace(last_producer_epoch=NONE)


def repeat_end(step: TransactionStep) -> None:
    """A retry of EndTxn after the transaction is complete.

    Deviation: no client gets epoch 32767, which a fence with TV1 leaves; Kafka returns it.
    """
    if step.version is TV2 and step.metadata.producer_epoch > EPOCH_LAST:
        step.effects.answer(step.token, ProducerId(KafkaErrorCode.PRODUCER_FENCED))
    else:
        step.effects.answer(step.token, _ended(step, step.metadata))


def complete(step: TransactionStep) -> None:
    """prepareComplete; the next producer id becomes the current one."""
    old = step.metadata
    state = State.COMPLETE_COMMIT if old.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
    step.effects.records.append(completed_metadata(old)._replace(state=state, updated_ms=step.now.wall_ms))


def expire(step: TransactionStep) -> None:
    """prepareDead: a tombstone."""
    step.effects.records.append(TransactionDeleted(step.metadata.transactional_id))


def completed_metadata(old: TransactionMetadata) -> TransactionMetadata:
    """Id and epoch once a prepared transaction is complete."""
    new = old._replace(partitions=NO_PARTITIONS, previous_producer_id=old.producer_id, next_producer_id=NONE)
    return new if old.next_producer_id < 0 else new._replace(producer_id=old.next_producer_id, producer_epoch=0)


def markers_of(prepared: TransactionMetadata) -> SendMarkers:
    """The markers of a prepared transaction; after loading too."""
    version = TV2 if prepared.version >= TV2 else TV1
    return SendMarkers(
        prepared.transactional_id,
        prepared.producer_id,
        prepared.producer_epoch,
        prepared.state is State.PREPARE_COMMIT,
        prepared.partitions,
        version,
    )


def rearm(metadata: TransactionMetadata, now: Now) -> Effects:
    """What continues an open transaction after loading: the rest of the timeout, or the markers."""
    effects = Effects()
    if metadata.state is State.ONGOING:
        elapsed = min(max(now.wall_ms - metadata.start_ms, 0), metadata.timeout_ms)
        effects.set_timer((TIMEOUT_TIMER, metadata.transactional_id), now.ms + metadata.timeout_ms - elapsed)
    else:
        effects.ask_after_commit(markers_of(metadata))
    return effects


def _initialize(step: TransactionStep, producer_id: int, epoch: int, last: int, previous: int) -> None:
    old = step.metadata
    new = TransactionMetadata(old.transactional_id, producer_id, epoch, step.timeout_ms, step.now.wall_ms)
    new = new._replace(last_producer_epoch=last, previous_producer_id=previous, version=old.version)
    step.effects.records.append(new)
    step.effects.answer(step.token, ProducerId(KafkaErrorCode.NONE, producer_id, epoch))


def _add(step: TransactionStep, start_ms: int) -> None:
    old = step.metadata
    new = old._replace(
        state=State.ONGOING,
        partitions=old.partitions | step.partitions,
        start_ms=start_ms,
        previous_producer_id=old.producer_id,
        updated_ms=step.now.wall_ms,
        version=step.version if step.version is TV2 else 0,
    )
    step.effects.records.append(new)
    step.effects.answer(step.token, KafkaErrorCode.NONE)


def _end(step: TransactionStep, state: TransactionState) -> None:
    epoch = step.metadata.producer_epoch + (step.version is TV2)
    if prepared := _prepare(step, state, epoch):
        step.effects.answer(step.token, _ended(step, completed_metadata(prepared)))


def _prepare(step: TransactionStep, state: TransactionState, epoch: int) -> TransactionMetadata | None:
    """Write the decision; None if a new producer id is needed first (also for a fence, KAFKA-20090).

    A stored epoch 32767 cannot be incremented: the markers have it too, with TV1, which accepts an equal epoch.
    """
    old = step.metadata
    if step.version is TV2 and old.is_exhausted and step.new_producer_id < 0:
        step.needs_producer_id = True
        return None
    version = TV2 if step.version is TV2 and old.producer_epoch < EPOCH_MAX else 0
    start_ms = old.start_ms if old.state is State.ONGOING else step.now.wall_ms
    last = old.producer_epoch if step.version is TV2 else old.last_producer_epoch
    new = old._replace(
        state=state,
        producer_epoch=min(epoch, EPOCH_MAX),
        start_ms=start_ms,
        version=version,
        last_producer_epoch=last,
        previous_producer_id=old.producer_id,
        next_producer_id=step.new_producer_id,
        updated_ms=step.now.wall_ms,
    )
    step.effects.records.append(new)
    step.effects.ask_after_commit(markers_of(new))
    step.effects.cancel_timer((TIMEOUT_TIMER, old.transactional_id))
    return new


def _ended(step: TransactionStep, metadata: TransactionMetadata) -> ProducerId:
    if step.version is TV1:
        return ProducerId(KafkaErrorCode.NONE)
    return ProducerId(KafkaErrorCode.NONE, metadata.producer_id, metadata.producer_epoch)


def _set_timeout(step: TransactionStep, after_ms: int) -> None:
    step.effects.set_timer((TIMEOUT_TIMER, step.metadata.transactional_id), step.now.ms + after_ms)
