"""Applies the requests of the controller, one after another, in slices: UpdateMetadata, LeaderAndIsr, StopReplica.

1. A request is checked when its turn comes, so that it is compared with the epochs of all requests before it.
2. It is answered when it is applied. The image is swapped whole; leaderships change partition by partition.
3. A request with impossible contents is rejected with INVALID_REQUEST, and nothing of it is applied.
4. The controller on this broker calls the methods as well; it has no connection to itself.
5. A request with a controller epoch that is not known yet waits until `/controller_epoch` is read, which is bounded.
6. While `WAITING_MAX` requests wait, further ones are rejected with REQUEST_TIMED_OUT, and the controller repeats them
   with its newest states. It has one request to a broker in flight: those that wait are ones that it has given up.

Authorisation (CLUSTER_ACTION) is not checked yet: until then, only the brokers of the cluster may reach the listener
between brokers, the only one that serves these requests.

Sources: KafkaApis (handleLeaderAndIsrRequest, handleStopReplicaRequest, handleUpdateMetadataRequest) of Apache Kafka
3.9.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from kafkalite.callbacks import SerialExecutor, call_each
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.configs.reads import Texts
from kafkalite.cluster.controller.fence import ControllerFence, ControllerRequest
from kafkalite.cluster.metadata.image import UNASSIGNED_ID, ClusterTables
from kafkalite.cluster.metadata.update import FULL, InvalidControllerRequestError, MetadataChange, MetadataUpdate
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kafkalite.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkalite.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.server.hosting.assigned_partitions import AssignedPartitions, PartitionError
from kafkalite.server.hosting.leader_and_isr import Overrides, check_assignment
from kafkalite.slicing import Slicer, Steps, group_steps

ANNOUNCED_MAX = 10_000  # topics in deletion that are remembered
ALL, RESIGNATIONS = "all requests", "resignations"  # the keys of their serial execution
WAITING_MAX = 4  # requests that wait for earlier ones, while those wait for the coordination service

RaiseEpochs = Callable[[Mapping[TopicPartition, int], Callable[[], object]], object]
LeaderAndIsrTopicError = LeaderAndIsrResponse.LeaderAndIsrTopicError
StoppedError = StopReplicaResponse.StopReplicaPartitionError


def raise_nothing(_latest: Mapping[TopicPartition, int], then: Callable[[], object]) -> None:
    """Raise nothing: a broker without a tree continues."""
    then()


class TopicConfigReader(Protocol):
    """Reads topic configs from the tree."""

    def read(self, topics: Sequence[str], then: Callable[[Mapping[str, Texts | None]], object]) -> None:
        """Call `then` once with the configs of each topic; those without a node have none, None = they cannot be read.
        While the coordination service is not available, the call waits.
        """


class EpochReader(Protocol):
    """Reads the controller epoch from the tree."""

    def read_epoch(self, then: Callable[[int], object]) -> None:
        """Call `then` once, within a time limit, with the epoch; -1: it cannot be read."""


class MetadataObserver(Protocol):
    """Is called with each change of the image, after the swap."""

    def __call__(self, change: MetadataChange, /) -> object: ...


class ControllerRequests:
    """The requests of the controller to this broker.

    Arguments:
        fence: the epochs that are known.
        epochs: reads the epoch of a new controller.
        tables: hold the image.
        hosting: hosts the assigned partitions.
        configs: reads the configs of topics that are new on this broker.
        slicer: spreads large requests over loop iterations.
        log: for rejected requests.

    Attributes:
        observers: are called with each change of the image.
        raise_epochs: raises leader epochs in the tree to those of logs; replaced by the owner.
    """

    def __init__(
        self,
        fence: ControllerFence,
        epochs: EpochReader,
        tables: ClusterTables,
        hosting: AssignedPartitions,
        configs: TopicConfigReader,
        slicer: Slicer,
        log: RateLimitedLog,
    ) -> None:
        self.fence = fence
        self.observers: list[MetadataObserver] = []
        self.raise_epochs: RaiseEpochs = raise_nothing
        self._epochs = epochs
        self._tables = tables
        self._hosting = hosting
        self._configs = configs
        self._slicer = slicer
        self._log = log
        self._serial = SerialExecutor()
        self._waiting = 0  # requests whose turn has not come
        self._deletions: dict[str, bytes] = {}  # announced, by name

    def update_metadata(self, request: UpdateMetadataRequest, then: Then) -> None:
        """Replace the image; `then` receives the outcome with an UpdateMetadataResponse."""
        self._run(request, UpdateMetadataResponse, self._update_metadata, then)

    def leader_and_isr(self, request: LeaderAndIsrRequest, then: Then) -> None:
        """Host the assigned partitions; `then` receives the outcome with a LeaderAndIsrResponse."""
        self._run(request, partial(LeaderAndIsrResponse, topics=[]), self._leader_and_isr, then)

    def stop_replica(self, request: StopReplicaRequest, then: Then) -> None:
        """Stop hosting partitions; `then` receives the outcome with a StopReplicaResponse."""
        self._run(request, partial(StopReplicaResponse, partition_errors=[]), self._stop_replica, then)

    def unregistered(self) -> None:
        """The registration of this broker has ended: it leads and follows nothing until a controller assigns it again.

        Requests that wait are rejected. One that is being applied assigns nothing any more: it may wait for configs
        that can only be read in the next session, so it is not waited for.
        """
        self.fence.unregistered()
        self._hosting.roles.fetchers.stop_all()
        self._hosting.roles.abandon()

        def resign(end: Callable[[], None]) -> None:
            def resigned(outcome: Outcome) -> None:
                end()
                outcome.result()

            self._slicer.run(group_steps(self._hosting.resigning()), resigned)

        self._serial.run(RESIGNATIONS, resign)

    def stop_replicas(self) -> None:
        """The broker stops: it leads and follows no partition of which other brokers have replicas.

        Appends that wait for these brokers are rejected, so that their clients find the other leader.
        """
        replicated = self._hosting.replicated
        if replicated:
            self.fence.unregistered()
            self._hosting.roles.fetchers.stop_all()
            self._hosting.roles.abandon()
            call_each(self._hosting.roles.end, replicated)

    def when_resigned(self, then: Callable[[], object]) -> None:
        """Call `then` when this broker leads and follows nothing of earlier registrations."""
        self._run_after(RESIGNATIONS, then)

    def when_applied(self, then: Callable[[], object]) -> None:
        """Call `then` when everything that was requested before is applied."""
        self._run_after(ALL, then)

    def _run_after(self, key: str, then: Callable[[], object]) -> None:
        def step(end: Callable[[], None]) -> None:
            end()
            then()

        self._serial.run(key, step)

    def _run(
        self,
        request: Any,
        response: Callable[..., Any],
        apply: Callable[[Any, Then], object],
        then: Then,
    ) -> None:
        """Apply a request after all earlier ones.

        Arguments:
            request: of the controller.
            response: creates a response with only an error code.
            apply: applies the request, and calls back with the response.
            then: of the request.
        """

        def refuse(error: int, reason: str, done: Then) -> None:
            self._log_rejection(request, error, reason)
            done(Outcome(response(error_code=error)))

        def step(end: Callable[[], None]) -> None:
            self._waiting -= 1

            def ended(outcome: Outcome) -> None:
                end()
                if isinstance(outcome.error, InvalidControllerRequestError):
                    refuse(KafkaErrorCode.INVALID_REQUEST, str(outcome.error), then)
                else:
                    then(outcome)

            def fenced() -> None:
                error, reason = self.fence.accept(request)
                if error:
                    refuse(error, reason, ended)
                else:
                    apply(request, ended)

            self._know_epoch(request, fenced)

        if self._waiting >= WAITING_MAX:
            refuse(KafkaErrorCode.REQUEST_TIMED_OUT, f"{self._waiting} earlier requests wait", then)
            return
        self._waiting += 1
        self._serial.run(ALL, step)

    def _know_epoch(self, request: ControllerRequest, then: Callable[[], None]) -> None:
        """Read the controller epoch of the tree if this request needs it, then continue."""

        def read(epoch: int) -> None:
            self.fence.tree_epoch_read(epoch)
            then()

        if self.fence.needs_tree_epoch(request):
            self._epochs.read_epoch(read)
        else:
            then()

    def _log_rejection(self, request: ControllerRequest, error: int, reason: str) -> None:
        name, code = type(request).__name__.removesuffix("Request"), KafkaErrorCode(error).name
        text = "%s of controller %d in epoch %d is rejected with %s: %s"
        values = name, request.controller_id, request.controller_epoch, code, reason
        self._log(logging.WARNING, f"{name} {code}", text, *values)

    # UpdateMetadata.

    def _update_metadata(self, request: UpdateMetadataRequest, done: Then) -> None:
        def updated(outcome: Outcome) -> None:
            if outcome.error is None:
                self._swap(outcome.value)
                outcome = Outcome(UpdateMetadataResponse(error_code=0))
            done(outcome)

        self._slicer.run(group_steps(MetadataUpdate(self._tables.image, request).steps()), updated)

    def _swap(self, change: MetadataChange) -> None:
        self._tables.swap(change.image)
        for name in change.changed:
            self._deletions.pop(name, None)
        self._deletions.update(change.deletions)
        while len(self._deletions) > ANNOUNCED_MAX:
            del self._deletions[next(iter(self._deletions))]
        call_each(lambda observer: observer(change), self.observers)

    # LeaderAndIsr.

    def _leader_and_isr(self, request: LeaderAndIsrRequest, done: Then) -> None:
        topics: list[str] = []  # that are hosted newly

        def checked(outcome: Outcome) -> None:
            if outcome.error is not None:
                done(outcome)
                return
            topics.extend(outcome.value)
            self._hosting.begin_hosting(topics)
            if topics:
                self._configs.read(topics, host)
            else:
                host({})

        def host(overrides: Overrides) -> None:
            steps = self._hosting.assigning(request, overrides, partial(self._is_current, request))
            self._slicer.run(group_steps(steps), applied)

        def applied(outcome: Outcome) -> None:
            self._read_again(self._hosting.end_hosting(topics))
            if outcome.error is not None:
                done(outcome)
            else:
                self._hosting.roles.when_ready(partial(ready, outcome.value))

        def ready(results: Sequence[PartitionError], failed: Mapping[TopicPartition, int]) -> None:
            self._slicer.run(group_steps(leader_and_isr_response(results, failed)), answer)

        def answer(outcome: Outcome) -> None:
            if outcome.error is not None:
                done(outcome)
                return
            behind = self._hosting.states.take_behind()
            if behind:  # the answer lets the controller elect again: the epochs in the tree are raised before
                self.raise_epochs(behind, partial(done, outcome))
            else:
                done(outcome)

        self._slicer.run(group_steps(self._checking(request)), checked)

    def _read_again(self, topics: Sequence[str]) -> None:
        """Read and apply the configs of topics that were changed while the topics were being hosted."""

        def read(found: Mapping[str, Texts | None]) -> None:
            for topic, texts in found.items():
                self._hosting.configure_topic(topic, texts)

        if topics:
            self._configs.read(topics, read)

    def _is_current(self, request: ControllerRequest) -> bool:
        """Whether this broker still has the registration to which a request belongs."""
        return self.fence.broker_epoch == request.broker_epoch

    def _checking(self, request: LeaderAndIsrRequest) -> Steps:
        """Check a request, leave what a full one does not name, and return the topics whose configs are needed."""
        if request.ungrouped_partition_states or any(each.topic_id == UNASSIGNED_ID for each in request.topic_states):
            text = "it has no topic ids: inter.broker.protocol.version must be 2.8 or later"
            raise InvalidControllerRequestError(text)
        yield from check_assignment(request)
        if request.type == FULL:
            yield from self._hosting.leaving(request, self._deletions)
        return (yield from self._hosting.topics_to_host(request))

    # StopReplica.

    def _stop_replica(self, request: StopReplicaRequest, done: Then) -> None:
        self._slicer.run(group_steps(self._stopping(request)), done)

    def _stopping(self, request: StopReplicaRequest) -> Steps:
        """Apply a request, and return the response."""
        results = yield from self._hosting.stopping(request, self._deletions)
        return (yield from stop_replica_response(results))


def leader_and_isr_response(results: Sequence[PartitionError], failed: Mapping[TopicPartition, int]) -> Steps:
    """Return the response to LeaderAndIsr; yields after each partition. `failed` has errors of those without one.

    Versions 0 to 4, which have no topic ids, are rejected as a whole.
    """
    topics: dict[bytes, LeaderAndIsrTopicError] = {}
    for result in results:
        topic = topics.get(result.topic_id)
        if topic is None:
            topic = topics[result.topic_id] = LeaderAndIsrTopicError(topic_id=result.topic_id, partition_errors=[])
        code = result.error or failed.get(TopicPartition(result.topic, result.partition), 0)
        error = LeaderAndIsrPartitionError(partition_index=result.partition, error_code=code)
        topic.partition_errors.append(error)
        yield
    return LeaderAndIsrResponse(error_code=0, topics=list(topics.values()))


def stop_replica_response(results: Sequence[PartitionError]) -> Steps:
    """Return the response to StopReplica; yields after each partition."""
    errors = []
    for result in results:
        each = StoppedError(topic_name=result.topic, partition_index=result.partition, error_code=result.error)
        errors.append(each)
        yield
    return StopReplicaResponse(error_code=0, partition_errors=errors)
