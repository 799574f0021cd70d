"""The transaction coordinator of a broker: creates runtime, service and marker sender, and answers its machines.

The broker creates it when `__transaction_state` exists, or for the first request of a transactional id.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafkalite.clock import Timer
from kafkalite.cluster.metadata.image import FinalizedFeatures
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.producer_ids import ProducerIds
from kafkalite.cluster.topics.internal_topics import TRANSACTION_STATE
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime, RuntimeHost
from kafkalite.coordinators.transaction.marker_host import MarkerHost
from kafkalite.coordinators.transaction.marker_sender import MarkerSender
from kafkalite.coordinators.transaction.serde import FIRST_VERSION, TAGGED_VERSION, TransactionRecordSerde
from kafkalite.coordinators.transaction.service import TransactionService
from kafkalite.coordinators.transaction.settings import machine_settings
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.transactions.counters import TransactionCounters
from kafkalite.state.transactions.machine import TransactionMachine
from kafkalite.state.transactions.requests import AllocateProducerId, SendMarkers
from kafkalite.state.transactions.states import PREPARED, TransactionVersion

TV2_LEVEL = 2
COMMIT_TIMEOUT_MS = 15_000
"""How long a response waits for its record. Deviation: in Kafka, the timeout of the transaction."""


class TransactionHost(RuntimeHost, MarkerHost, Protocol):
    """The broker, as the transaction coordinator needs it."""

    producer_ids: ProducerIds

    @property
    def features(self) -> FinalizedFeatures: ...


class TransactionCoordinator:
    """The transactions of a broker; loading starts immediately, in the background.

    Attributes:
        transactions: serves requests.
        counters: of the ended transactions.
    """

    def __init__(self, host: TransactionHost) -> None:
        self._host = host
        self.counters = TransactionCounters()
        self._runtime: CoordinatorRuntime[TransactionMachine] = CoordinatorRuntime(
            host,
            TRANSACTION_STATE,
            self._create_machine,
            TransactionRecordSerde(lambda: TAGGED_VERSION if host.features.transaction_version else FIRST_VERSION),
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            reload_on_new_epoch=True,
        )
        self._runtime.ask = self._ask
        self._write: Timer | None = None
        self._markers = MarkerSender(host, self._runtime.submit, lambda: host.features.transaction_version)
        self.transactions = TransactionService(self._runtime, self._markers.partitions_left)
        self._runtime.create_shards()

    def _create_machine(self) -> TransactionMachine:
        machine = TransactionMachine(machine_settings(self._host.config), self._version)
        machine.counters = self.counters
        return machine

    def _version(self) -> TransactionVersion:
        """The version of the finalized level."""
        level = self._host.features.transaction_version
        return TransactionVersion.TV2 if level >= TV2_LEVEL else TransactionVersion.TV1

    def partition_for(self, key: str) -> int:
        """The partition of a transactional id in `__transaction_state`."""
        return self._runtime.partition_for(key)

    def ensure_topic(self, then: Callable[[int], None]) -> None:
        """Create `__transaction_state` unless it exists; calls `then` with 0 or COORDINATOR_NOT_AVAILABLE."""
        self._runtime.ensure_topic(then)

    def topic_changed(self, name: str) -> None:
        """A topic was created or has more partitions."""
        if name == TRANSACTION_STATE.name:
            self._runtime.create_shards()

    def topic_gone(self, name: str) -> None:
        """A topic was deleted; its partitions need no markers."""

    def image_changed(self) -> None:
        """Leaders or brokers have changed: markers are sent to the present leaders."""
        self._markers.image_changed()
        self._runtime.write_pending()

    def elected(self, partition: Partition) -> None:
        """This broker leads a partition of `__transaction_state`, perhaps in a new leader epoch."""
        self._runtime.elected(partition)

    def resigned(self, partition: int) -> None:
        """This broker leads a partition of `__transaction_state` no more."""
        self._runtime.resigned(partition)
        self._markers.forget(partition)

    def partitions_changed(self, count: int) -> None:
        """A cluster's `__transaction_state` has this number of partitions now; 0 = it does not exist."""
        self._runtime.partitions_changed(count)

    def close(self) -> None:
        """Stop: pending and later requests fail with NOT_COORDINATOR."""
        if self._write is not None:
            self._write.cancel()
        self._markers.close()
        self._runtime.close()

    # requests of the machines

    def _ask(self, partition: int, request: AllocateProducerId | SendMarkers) -> None:
        if isinstance(request, SendMarkers):
            if awaits_markers(self._runtime.machine(partition), request):
                self._markers.send(partition, request, self._runtime.leader_epoch(partition))
            if not self._host.replicas.is_writing:
                self._write_soon()
        else:
            self._host.producer_ids.draw(partial(self._drawn, partition, request.transactional_id))

    def _write_soon(self) -> None:
        """Write the markers once for all decisions of this loop iteration: a flush or a follower has committed them."""
        if self._write is None:
            clock = self._host.clock
            self._write = clock.call_at(clock.monotonic(), self._write_markers)

    def _write_markers(self) -> None:
        self._write = None
        self._runtime.write_pending()

    def _drawn(self, partition: int, transactional_id: str, producer_id: int, error: int) -> None:
        """Pass a new producer id, or the error, to the machine that asked for it."""

        def command(machine: TransactionMachine, _token: Token, now: Now) -> Effects:
            if error:
                return machine.producer_id_failed(transactional_id, error, now)
            return machine.producer_id_allocated(transactional_id, producer_id, now)

        self._runtime.submit(partition, command)
        self._runtime.write_pending()


def awaits_markers(machine: TransactionMachine | None, request: SendMarkers) -> bool:
    """Return whether a transaction is still prepared.

    The requests of a loaded machine are sent in slices. Markers of its predecessor may complete a transaction before:
    markers that are sent all the same could end the next transaction of a producer with the same epoch (TV1).

    Arguments:
        machine: of the shard; None: it was dropped.
        request: of this machine.
    """
    found = None if machine is None else machine.transactions.get(request.transactional_id)
    if found is None or found.state not in PREPARED:
        return False
    return (found.producer_id, found.producer_epoch) == (request.producer_id, request.epoch)
