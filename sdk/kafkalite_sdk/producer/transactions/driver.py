"""Sends the requests of the transaction machine, and applies its phases to the records and the consumers.

Invariants:
1. Records are accepted only while the phase is OPEN; otherwise `send` raises what the phase means.
2. From the begin of an abort on, the consumers of the transaction continue at their committed offsets.
3. There is no task; the producer's driver calls `work`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from kafkalite.backoff import Backoff
from kafkalite.errors import ClientUseError, KafkaError, KafkaTimeoutError, TransactionAbortedError
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.coordinators import GROUP, TRANSACTION
from kafkalite_sdk.producer.settings import ProducerSettings
from kafkalite_sdk.producer.transactions.machine import TransactionMachine
from kafkalite_sdk.producer.transactions.participants import Participants
from kafkalite_sdk.producer.transactions.records import TransactionRecords
from kafkalite_sdk.producer.transactions.state import V1, V2, Phase, TransactionCall

CONCURRENT_BACKOFF_S = 0.02  # TransactionManager.java: ADD_PARTITIONS_RETRY_BACKOFF_MS
FEATURE = "transaction.version"
NO_TRANSACTION = 'no transaction is open; send inside "async with producer.transaction()", or call begin_transaction()'


class TransactionDriver:
    """What sends the requests of one producer's transactions.

    Arguments:
        client: a started client.
        settings: of the producer, with a transactional id.
        records: of the producer.

    Attributes:
        machine: decides.
        records: the argument.
        participants: the consumers whose records the transactions process.
    """

    def __init__(self, client: ClusterClient, settings: ProducerSettings, records: TransactionRecords) -> None:
        assert settings.transactional_id is not None
        random, maximum_s = client.environment.random.random, settings.retry_backoff_max_s
        self.machine = TransactionMachine(
            settings.transactional_id,
            settings.transaction_timeout_ms,
            Backoff(settings.retry_backoff_s, maximum_s, random),
            Backoff(CONCURRENT_BACKOFF_S, maximum_s, random),
        )
        self._client = client
        self._request_timeout_s = settings.request_timeout_s
        self.records = records
        self.participants = Participants()
        records.on_failure(self.batch_failed)
        self._phase = Phase.STARTING  # the one that the records know
        self._broker = "the coordinator"  # that the open request was sent to, for error texts
        self._timeout_s = client.settings.default_api_timeout_s

    # work

    def work(self, now: float) -> float:
        """Send what is due; return when the next pause ends, in seconds of the loop's clock."""
        machine, records = self.machine, self.records
        self.follow()
        machine.add(records.unconfirmed_partitions())
        call = machine.request(now, records_open=records.records_open())
        if call is not None:
            self._send(call)
        self.follow()
        return machine.wake_at(now)

    def batch_failed(self, cause: BaseException) -> BaseException:
        """The records of a batch have failed; return the error that their users see."""
        machine = self.machine
        machine.batch_failed(cause)
        self.records.schedule()
        if machine.phase is Phase.CLOSED:
            return machine.error or cause
        return cause if isinstance(cause, TransactionAbortedError) else machine.abort_error()

    def sequences_lost(self) -> None:
        """The broker has lost the sequences of a partition, or the topic was created again."""
        self.machine.batch_failed(KafkaError("a broker has lost the sequences of a partition"))
        self.follow()

    def forget_sequences(self) -> bool:
        """Whether the producer may forget the sequences of an unused topic: not within a transaction."""
        if self.machine.phase not in (Phase.READY, Phase.STARTING, Phase.CLOSED):
            return False
        self.machine.forget_sequences()
        return True

    def begin(self) -> None:
        """Open a transaction."""
        machine = self.machine
        machine.begin()
        self._phase = Phase.OPEN
        self.records.begin_transaction(machine.identity, machine.transaction.version)

    def changed(self) -> None:
        """A call of the application has changed the machine."""
        self.follow()
        self.records.schedule()

    def follow(self) -> None:
        """Apply to the records and the consumers what the machine has decided."""
        machine, records = self.machine, self.records
        records.confirm(machine.transaction.partitions)
        if machine.phase is self._phase:
            return
        self._phase = machine.phase
        if machine.phase is Phase.FAILED:
            records.reject_records(machine.abort_error())
        elif machine.phase is Phase.ABORTING:
            records.reject_records(machine.abort_error())
            records.abort_records(machine.abort_error())
            self.participants.return_to_committed()
        elif machine.phase in (Phase.READY, Phase.STARTING):
            records.reject_records(ClientUseError(NO_TRANSACTION))
        elif machine.phase is Phase.COMMITTING:
            records.reject_records(ClientUseError("the transaction is being committed; begin another one first"))
        elif machine.phase is Phase.CLOSED and machine.error is not None:
            if not isinstance(machine.error, ClientUseError):  # else the transaction is detached, not aborted
                self.participants.return_to_committed()
            records.give_up(machine.error)
        records.schedule()

    # requests

    def _send(self, call: TransactionCall) -> None:
        key, key_type = self._key(call.group)
        node = self._client.coordinator(key, key_type)
        if node is not None:
            self._submit(call, node)
            return
        self._broker = "any broker"
        found, failed = partial(self._found, call), partial(self._lost, call)
        guard = self._client.owner.guard
        self._client.find_coordinator(key, key_type, guard(found), guard(failed), timeout_s=self._request_timeout_s)

    def _key(self, group: str | None) -> tuple[str, int]:
        return (self.machine.transactional_id, TRANSACTION) if group is None else (group, GROUP)

    def _found(self, call: TransactionCall, node: int) -> None:
        self._submit(call, node)

    def _submit(self, call: TransactionCall, node: int) -> None:
        address = self._client.view.brokers.get(node)
        self._broker = f"broker {node}" if address is None else f"broker {node} ({address.host}:{address.port})"
        guard = self._client.owner.guard
        answered, lost = partial(self._answered, call, node), partial(self._lost, call)
        timeout_s, version_max = self._request_timeout_s, call.version_max
        self._client.submit(
            node, call.request, guard(answered), guard(lost), timeout_s=timeout_s, version_max=version_max
        )

    def _answered(self, call: TransactionCall, node: int, response: Any) -> None:
        if call.group is None:
            level = self._client.feature(node, FEATURE)
            self.machine.version = V2 if level is not None and level >= V2 else V1
        self.machine.answered(call, response, self._client.loop.time(), self._broker)
        self._ended()

    def _lost(self, call: TransactionCall, error: KafkaError) -> None:
        if isinstance(error, ClientUseError):
            return  # the client is being closed: each further request would fail at once
        self.machine.lost(call, error, self._client.loop.time(), self._broker)
        self._ended()

    def _ended(self) -> None:
        lost = self.machine.lost_coordinators
        while lost:
            self._client.forget_coordinator(*self._key(lost.pop()))
        self.follow()
        self.records.schedule()

    # waits

    @property
    def name(self) -> str:
        """The transactional id, for error texts."""
        return f"transactional id {self.machine.transactional_id}"

    def time(self) -> float:
        """Return the time of the loop's clock, in seconds."""
        return self._client.loop.time()

    async def wait(self, condition: Callable[[], bool], timeout_s: float | None, what: str) -> None:
        """Wait for the machine.

        Arguments:
            condition: it is true at the end.
            timeout_s: in seconds, None = `default_api_timeout_s`.
            what: has not happened, for the error.

        Raises:
            KafkaTimeoutError: it names the cause.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            await self.records.wait_until(condition, timeout_s, "")
        except KafkaTimeoutError:
            machine = self.machine
            cause = machine.last_error or self._client.unreachable() or f"{self._broker} has not answered"
            text = f"{self.name}: {what} within {timeout_s:g} s: {cause}; is the coordinator reachable?"
            raise KafkaTimeoutError(text) from machine.last_error
