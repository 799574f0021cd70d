"""Decides which requests a transactional producer sends to its coordinators, and how a transaction ends.

Pure: no I/O, no clock. The driver sends the call of `request` and passes its end to `answered` or `lost`; it calls
`request` again after each change, and at `wake_at`.

Invariants:
1. One request is open. Every transaction ends once: committed, aborted, or with a fatal error.
2. EndTxn leaves when no record is open and all offsets are sent. Once a commit was sent, only the coordinator decides.
3. The coordinator owns the epoch: InitProducerId and, with version 2, EndTxn return it. No epoch is calculated here.
4. An error that `reactions` calls abortable leads to FAILED, or during a commit to ABORTING; only the application or
   the end of its block leaves FAILED. After a fatal error nothing is sent.
5. Retriable errors are retried until the transaction ends. The deadlines of the application's calls are the driver's.

Sources: TransactionManager.java of Apache Kafka 4.3; KIP-98, KIP-360, KIP-447, KIP-890.
"""

from collections.abc import Iterable
from math import inf
from typing import Any

from kafkalite.backoff import Backoff
from kafkalite.errors import (
    AuthorizationError,
    ClientUseError,
    DecodeError,
    KafkaError,
    KafkaErrorCode,
    TransactionAbortedError,
    error_class,
    error_for,
    with_right,
)
from kafkalite.model import TopicPartition
from kafkalite_sdk.producer.partition_sender import NO_PRODUCER_ID, ProducerId
from kafkalite_sdk.producer.transactions import failures, requests
from kafkalite_sdk.producer.transactions.reactions import SEVERITY, Reaction, Step, reaction_to
from kafkalite_sdk.producer.transactions.retries import Retries
from kafkalite_sdk.producer.transactions.state import V1, V2, OffsetsToSend, OpenTransaction, Phase, TransactionCall
from kafkalite_sdk.values import DetachedTransaction

CONCURRENT = KafkaErrorCode.CONCURRENT_TRANSACTIONS
DETACHED_TEXT = "its transaction is detached, admin.transactions.end ends it; create another producer to continue"


class TransactionMachine:
    """The transactions of one producer.

    Arguments:
        transactional_id: of the producer.
        timeout_ms: the coordinator aborts a transaction after this time.
        backoff: pause after a retriable error.
        short_backoff: pause while the previous transaction is still completing (CONCURRENT_TRANSACTIONS).

    Attributes:
        transactional_id: the argument.
        phase: what the producer does.
        identity: producer id and epoch, as the coordinator has assigned them.
        transaction: the open one, or the last one.
        version: of the transaction protocol, for the next transaction; the driver sets it before `answered`.
        ended: number of transactions that have ended, failed ones included.
        error: of CLOSED.
        last_error: the last retriable one, None = no request has failed since the last response.
        lost_coordinators: keys of coordinators that must be found again: a group, None = that of the transactional id.
            The driver empties the set.
    """

    def __init__(self, transactional_id: str, timeout_ms: int, backoff: Backoff, short_backoff: Backoff) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.STARTING
        self.identity = NO_PRODUCER_ID
        self.transaction = OpenTransaction(V1)
        self.version = V1
        self.ended = 0
        self.error: KafkaError | None = None
        self.last_error: KafkaError | None = None
        self.lost_coordinators: set[str | None] = set()
        self._timeout_ms = timeout_ms
        self._retries = Retries(backoff, short_backoff)
        self._open: TransactionCall | None = None

    # calls of the producer

    def begin(self) -> None:
        """Open a transaction; the phase is READY."""
        assert self.phase is Phase.READY, self.phase
        self.transaction = OpenTransaction(self.version)
        self.phase = Phase.OPEN

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Batches of these partitions wait to be sent (version 1)."""
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            new = (each for each in partitions if each not in self.transaction.partitions)
            self.transaction.unconfirmed.update(dict.fromkeys(new))

    def produced(self) -> None:
        """A batch leaves; with version 2 its broker adds the partition to the transaction."""
        self.transaction.begun = True

    def send_offsets(self, entry: OffsetsToSend) -> None:
        """Commit offsets with the transaction; the phase is OPEN."""
        assert self.phase is Phase.OPEN, self.phase
        if entry.offsets:
            self.transaction.offsets.append(entry)
        else:
            entry.done(None)

    def commit(self) -> None:
        """Commit the transaction when its records are acknowledged and its offsets sent. A failed one is aborted."""
        if self.phase is Phase.OPEN:
            self.phase = Phase.COMMITTING
        elif self.phase is Phase.FAILED:
            self._begin_abort()

    def abort(self) -> None:
        """Abort the open transaction, unless its commit was sent."""
        committing = self.phase is Phase.COMMITTING and not self.transaction.end_sent
        if committing or self.phase in (Phase.OPEN, Phase.FAILED):
            self._begin_abort()

    def _begin_abort(self) -> None:
        self.phase = Phase.ABORTING
        self.transaction.unconfirmed.clear()
        self.transaction.fail_offsets(self.abort_error())
        self._retries.end()

    def fail(self, cause: KafkaError, *, recover: bool = False) -> None:
        """The open transaction must be aborted.

        Arguments:
            cause: why.
            recover: EndTxn is not enough, the epoch must change.
        """
        transaction = self.transaction
        if self.phase in (Phase.OPEN, Phase.FAILED, Phase.COMMITTING):
            transaction.error = transaction.error or cause
        if self.phase in (Phase.OPEN, Phase.FAILED, Phase.COMMITTING, Phase.ABORTING):
            transaction.recover |= recover
        if self.phase is Phase.OPEN:
            self.phase = Phase.FAILED
            transaction.fail_offsets(self.abort_error())
        elif self.phase is Phase.COMMITTING:
            self._begin_abort()

    def batch_failed(self, cause: BaseException) -> None:
        """The records of a batch have failed."""
        if self.phase in (Phase.READY, Phase.CLOSED):
            return
        self.transaction.has_gap = True
        failure = failures.batch_error(cause)
        self._react(Step.PRODUCE, reaction_to(Step.PRODUCE, 0 if failure.code is None else failure.code), failure)

    def forget_sequences(self) -> None:
        """The producer has forgotten the sequences of a partition: another epoch is needed, unless the next transaction
        has another one anyway. No transaction is open."""
        if self.phase is Phase.READY and self.transaction.version == V1:
            self.phase = Phase.STARTING

    def close(self, error: KafkaError) -> None:
        """The producer cannot continue."""
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.CLOSED
            self.error = error
            self.ended += 1
            self.transaction.fail_offsets(error)

    def detach(self) -> DetachedTransaction | None:
        """Leave the open transaction to another process, and close; the phase is OPEN and no record is open.

        Returns:
            What ends the transaction; None = the coordinator does not know it, as nothing was sent.
        """
        assert self.phase is Phase.OPEN, self.phase
        found = DetachedTransaction(self.transactional_id, *self.identity, self.transaction.version)
        self.close(ClientUseError(f"transactional id {self.transactional_id}: {DETACHED_TEXT}"))
        return found if self.transaction.begun else None

    def abort_error(self) -> TransactionAbortedError:
        """Return the error of a transaction that is aborted."""
        return failures.abort_error(self.transactional_id, self.transaction.error)

    # requests

    def request(self, now: float, *, records_open: bool) -> TransactionCall | None:
        """Return the request that leaves now; None = none may.

        Arguments:
            now: in seconds of the driver's clock.
            records_open: records are not acknowledged yet, or a Produce request is open.
        """
        if self._open is not None or now < self._retries.retry_at:
            return None
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            self._open = self._content() or self._end_of_commit(records_open=records_open)
        elif self.phase is Phase.STARTING:
            self._open = self._init()
        elif self.phase is Phase.ABORTING and not records_open:
            self._open = self._end_of_abort()
        return self._open

    def _init(self) -> TransactionCall:
        return requests.init_producer_id(self.transactional_id, self._timeout_ms, self.identity)

    def _content(self) -> TransactionCall | None:
        """Partitions and offsets that belong to the transaction."""
        transaction = self.transaction
        if transaction.unconfirmed:
            transaction.begun = True
            return requests.add_partitions(self.transactional_id, self.identity, transaction.unconfirmed)
        if not transaction.offsets:
            return None
        transaction.begun = True
        entry = transaction.offsets[0]
        if transaction.version == V1 and entry.member.group not in transaction.groups:
            return requests.add_offsets(self.transactional_id, self.identity, entry.member.group)
        return requests.commit_offsets(self.transactional_id, self.identity, entry, transaction.version)

    def _end_of_commit(self, *, records_open: bool) -> TransactionCall | None:
        if self.phase is Phase.OPEN or records_open:
            return None
        if not self.transaction.begun:
            self._complete()
            return None
        self.transaction.end_sent = True
        return requests.end(self.transactional_id, self.identity, self.transaction.version, committed=True)

    def _end_of_abort(self) -> TransactionCall | None:
        transaction = self.transaction
        if transaction.begun and not transaction.abort_ended:
            # InitProducerId would abort it, too, but by fencing this producer (prepareInitProducerIdTransit).
            return requests.end(self.transactional_id, self.identity, transaction.version, committed=False)
        if transaction.needs_epoch:
            return self._init()
        self._complete()
        return None

    def _complete(self) -> None:
        # A late batch of version 1 could be appended to a transaction of version 2, whose batches add their partitions
        # (maybeUpdateTransactionV2Enabled of Kafka 4.0).
        rises = self.transaction.version == V1 and self.version >= V2
        self.phase = Phase.STARTING if rises else Phase.READY
        self.ended += 1
        self._retries.end()

    def wake_at(self, now: float) -> float:
        """Return when a pause ends, in seconds of the driver's clock; infinity = there is none."""
        return self._retries.retry_at if self._open is None and self._retries.retry_at > now else inf

    # responses

    def answered(self, call: TransactionCall, response: Any, now: float, broker: str) -> None:
        """The response to a request has arrived.

        Arguments:
            call: the request.
            response: its response.
            now: in seconds of the driver's clock.
            broker: that has answered, for error texts.
        """
        self._open = None
        rejected = []
        for subject, code in requests.codes_of(call.step, response):
            if code:
                rejected.append((reaction_to(call.step, code), code, subject))
        self._apply(call, response)
        if not rejected:
            self.last_error = None
            self._retries.succeeded()
            return
        reaction, code, subject = max(rejected, key=lambda each: SEVERITY.index(each[0]))
        about = f" for {subject}" if subject else ""
        reason = getattr(response, "error_message", None) or error_class(code).code.message
        text = f"transactional id {self.transactional_id}: {broker} has rejected {call.step.value}{about}: {reason}"
        self._failed(call, reaction, error_for(code, self._with_right(call, code, text, subject)), now)

    def _with_right(self, call: TransactionCall, code: int, text: str, subject: str = "") -> str:
        """Return the text of an error; that of a missing right names the command that grants it.

        Arguments:
            call: the request.
            code: of the error.
            text: so far.
            subject: the partition, of an error of a topic.
        """
        if code == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return with_right(code, text, "write", subject.rpartition("-")[0])
        if code == KafkaErrorCode.GROUP_AUTHORIZATION_FAILED:
            return with_right(code, text, "read", getattr(call.request, "group_id", ""))
        return with_right(code, text, "write", self.transactional_id)

    def _apply(self, call: TransactionCall, response: Any) -> None:
        """Apply what a response has confirmed."""
        transaction, step = self.transaction, call.step
        if step is Step.ADD_PARTITIONS:
            for each, code in requests.partition_codes(response).items():
                if not code and each in transaction.unconfirmed:
                    del transaction.unconfirmed[each]
                    transaction.partitions.add(each)
        elif step is Step.COMMIT_OFFSETS:
            self._offsets_committed(requests.partition_codes(response))
        elif response.error_code:
            return
        elif step is Step.ADD_OFFSETS:
            transaction.groups.add(call.request.group_id)  # type: ignore[attr-defined]
        elif step is Step.INIT:
            self.identity = ProducerId(response.producer_id, response.producer_epoch)
            if self.phase is Phase.ABORTING:
                self._complete()
            if self.phase is Phase.STARTING:
                self.phase = Phase.READY
        elif step is Step.END:
            if transaction.version >= V2 and response.producer_id >= 0:
                self.identity = ProducerId(response.producer_id, response.producer_epoch)
                transaction.recover = False
            transaction.abort_ended = self.phase is Phase.ABORTING
            if self.phase is Phase.COMMITTING or (self.phase is Phase.ABORTING and not transaction.needs_epoch):
                self._complete()

    def _offsets_committed(self, codes: dict[TopicPartition, int]) -> None:
        if not self.transaction.offsets:
            return  # the transaction has failed meanwhile
        entry = self.transaction.offsets[0]
        for each, code in codes.items():
            if not code:
                entry.offsets.pop(each, None)
        if not entry.offsets:
            self.transaction.offsets.pop(0)
            entry.done(None)

    def lost(self, call: TransactionCall, error: KafkaError, now: float, broker: str) -> None:
        """A request has no response, or its coordinator was not found.

        Arguments:
            call: the request.
            error: why.
            now: in seconds of the driver's clock.
            broker: that has not answered, for error texts.
        """
        self._open = None
        text = f"transactional id {self.transactional_id}: {call.step.value} to {broker} has failed: {error}"
        if isinstance(error, AuthorizationError) and error.code is not None:
            # The error of the lookup of a coordinator names Describe, which suffices for the lookup only.
            text = self._with_right(call, error.code, text.replace(str(error), error.code.message))
        if error.code is not None and not error.retriable:
            self._failed(call, reaction_to(call.step, error.code), error_for(error.code, text), now)
        elif error.retriable or isinstance(error, DecodeError):
            self._failed(call, Reaction.FIND, error, now)
        else:
            failure = KafkaError(text)
            failure.__cause__ = error
            self._failed(call, Reaction.FATAL, failure, now)

    def _failed(self, call: TransactionCall, reaction: Reaction, error: KafkaError, now: float) -> None:
        if reaction is Reaction.FIND:
            self.lost_coordinators.add(call.group)
        if reaction in (Reaction.FIND, Reaction.RETRY):
            self.last_error = error
            self._retries.failed(now, short=error.code == CONCURRENT)
        else:
            self._react(call.step, reaction, error)

    def _react(self, step: Step, reaction: Reaction, error: KafkaError) -> None:
        """Apply a reaction other than another attempt."""
        if reaction is Reaction.FENCED:
            unknown = self.transaction.end_sent and self.phase is not Phase.STARTING
            self.close(failures.fenced_error(error, outcome_unknown=unknown))
        elif reaction is Reaction.FATAL:
            self.close(failures.fatal_error(error))
        else:
            # After an abort that the coordinator rejects InitProducerId decides.
            aborting = self.phase is Phase.ABORTING and step is Step.END
            self.transaction.abort_ended |= aborting
            self.fail(error, recover=reaction is Reaction.RECOVER or aborting)
