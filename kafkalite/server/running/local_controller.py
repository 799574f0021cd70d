"""Defines `LocalController`: the controller of a cluster on this broker, from one session to the next.

Requests of the controller to its own broker go to their handlers, without a connection.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkalite.callbacks import once
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.controller.election import Term
from kafkalite.cluster.controller.invalid_nodes import InvalidPath
from kafkalite.cluster.controller.partition_changes import isr_changes, isr_response, shutdown, shutdown_response
from kafkalite.cluster.controller.runtime import ControllerRuntime
from kafkalite.cluster.peer import Answer, Fail, Peer
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination.backend import Coordination
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Endpoint, TopicPartition
from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from kafkalite.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kafkalite.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkalite.protocol.messages.stop_replica import StopReplicaRequest
from kafkalite.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkalite.server.process.resources import BrokerResources
from kafkalite.server.running.broker_listener import endpoint_for_brokers
from kafkalite.slicing import Steps, group_steps
from kafkalite.state.controller.controller import Controller, ControllerCounts
from kafkalite.state.controller.effects import Completion
from kafkalite.state.controller.events import AwaitDeletion, AwaitTopic, ElectLeaders
from kafkalite.state.controller.values import Broker, ControllerSettings

if TYPE_CHECKING:
    from kafkalite.server.hosting.controller_requests import ControllerRequests


class OwnPeer:
    """This broker as a receiver of the controller's requests: without a connection."""

    def __init__(self, requests: "ControllerRequests") -> None:
        self._apply: dict[type, Callable[[Any, Then], object]] = {
            LeaderAndIsrRequest: requests.leader_and_isr,
            StopReplicaRequest: requests.stop_replica,
            UpdateMetadataRequest: requests.update_metadata,
        }

    def call(self, request: Any, answer: Answer, fail: Fail) -> None:
        """Apply a request."""

        def applied(outcome: Outcome) -> None:
            if outcome.error is None:
                answer(outcome.value)
            else:
                fail(repr(outcome.error))
                raise outcome.error

        self._apply[type(request)](request, applied)

    def close(self) -> None:
        """There is no connection."""


class LocalController:
    """The controller, if this broker is elected; it takes part in the elections while it is started.

    Arguments:
        resources: clock, ports and random numbers.
        config: the static configuration.
    """

    def __init__(self, resources: BrokerResources, config: BrokerConfig) -> None:
        self._resources = resources
        self._static = self._config = config
        self._broker_id = -1
        self._requests: ControllerRequests | None = None
        self._runtime: ControllerRuntime | None = None
        self._ended_elections = 0  # unclean ones, of earlier sessions

    def start(self, session: Coordination, broker_id: int, requests: "ControllerRequests") -> None:
        """Take part in the elections of a session.

        Arguments:
            session: with the coordination service.
            broker_id: of this broker.
            requests: apply the requests of the controller to this broker.
        """
        self._broker_id, self._requests = broker_id, requests
        resources = self._resources
        self._runtime = ControllerRuntime(self, session, resources.clock, broker_id, resources.slicer, Controller)
        self._runtime.start()

    def close(self) -> None:
        """End the term, and take part in no election."""
        if self._runtime is not None:
            self._runtime.close()
            self._ended_elections += self._runtime.unclean_elections
            self._runtime = None

    @property
    def started(self) -> bool:
        """Whether it takes part in elections."""
        return self._runtime is not None

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""
        return self._runtime is not None and self._runtime.active

    @property
    def invalid_nodes(self) -> list[InvalidPath]:
        """The nodes of the tree that this broker leaves out, see `ControllerRuntime.invalid_nodes`."""
        return [] if self._runtime is None else self._runtime.invalid_nodes

    @property
    def counts(self) -> ControllerCounts | None:
        """The metrics of the controller, None if it is not on this broker."""
        return None if self._runtime is None else self._runtime.counts

    @property
    def unclean_elections(self) -> int:
        """Unclean elections by this broker since its start."""
        return self._ended_elections + (0 if self._runtime is None else self._runtime.unclean_elections)

    def submit(self, event: AwaitTopic | AwaitDeletion, done: Callable[[int], object]) -> None:
        """See `ControllerRuntime.submit`."""
        if self._runtime is None:
            done(KafkaErrorCode.NOT_CONTROLLER)
        else:
            self._runtime.submit(event, done)

    # Requests of brokers.

    def alter_partition(self, request: AlterPartitionRequest, then: Callable[[AlterPartitionResponse], object]) -> None:
        """Change the in-sync replicas of partitions that the sender leads; `then` is called once with the response."""

        def ended(result: Completion) -> None:
            self._respond(isr_response(request, result), then)

        self._request(isr_changes(request), ended)

    def controlled_shutdown(
        self, request: ControlledShutdownRequest, then: Callable[[ControlledShutdownResponse], object]
    ) -> None:
        """Move the leaderships of a broker that stops; `then` is called once with the response."""

        def ended(result: Completion) -> None:
            self._respond(shutdown_response(request, result), then)

        self._request(shutdown(request), ended)

    def elect_leaders(
        self,
        partitions: Sequence[TopicPartition],
        *,
        unclean: bool,
        timeout_s: float,
        then: Callable[[Completion], object],
    ) -> None:
        """Elect leaders on request.

        Arguments:
            partitions: each once.
            unclean: see `ElectLeaders`.
            timeout_s: after it the result is REQUEST_TIMED_OUT; the elections go on.
            then: called once with the result.
        """

        def elections() -> Steps:
            yield
            return ElectLeaders(None, unclean, tuple(partitions))

        clock = self._resources.clock
        end = once(then)
        late = Completion(None, KafkaErrorCode.REQUEST_TIMED_OUT)
        timer = clock.call_at(clock.monotonic() + timeout_s, end, late)

        def ended(result: Completion) -> None:
            timer.cancel()
            end(result)

        self._request(elections(), ended)

    def topic_configured(self, topic: str) -> None:
        """The configs of a topic have changed."""
        if self._runtime is not None:
            self._runtime.configs_changed(topic)

    def configure(self, config: BrokerConfig) -> None:
        """Use another configuration of this broker."""
        before, self._config = self._config, config
        if self._runtime is not None and _defaults(before) != _defaults(config):
            self._runtime.configs_changed(None)

    def _request(self, event: Steps, done: Callable[[Completion], object]) -> None:
        if self._runtime is None:
            done(Completion(None, KafkaErrorCode.NOT_CONTROLLER))
        else:
            self._runtime.request(event, done)

    def _respond(self, response: Steps, then: Callable[[Any], object]) -> None:
        self._resources.slicer.run(group_steps(response), lambda outcome: then(outcome.result()))

    # The `ControllerHost` of `ControllerRuntime`.

    def controller_settings(self, term: Term) -> ControllerSettings:
        """The settings of a term."""
        interval_s = self._static.leader_imbalance_check_interval_seconds
        chroot = (self._static.zookeeper_connect or "").partition("/")
        return ControllerSettings(
            self._broker_id,
            term.epoch,
            delete_topic_enable=self._static.delete_topic_enable,
            rebalance_ms=interval_s * 1000 if self._static.auto_leader_rebalance_enable else None,
            imbalance_max=self._static.leader_imbalance_per_broker_percentage / 100,
            path_prefix_bytes=len(chroot[1] + chroot[2]) if chroot[2] else 0,
            min_insync_replicas=self.min_insync_replicas_default,
        )

    def allows_unclean_elections(self, configs: Mapping[str, str]) -> bool:
        """Whether a topic with these configs elects replicas that are not in sync."""
        return self._config.stored_topic_config(configs).config.unclean_leader_election_enable

    def min_insync_replicas(self, configs: Mapping[str, str]) -> int | None:
        """That of a topic with these configs; None = they do not set it."""
        if "min.insync.replicas" not in configs:
            return None
        return self._config.stored_topic_config(configs).config.min_insync_replicas

    @property
    def min_insync_replicas_default(self) -> int:
        """That of topics that do not set it."""
        return self._config.topic_defaults.min_insync_replicas

    def new_topic_id(self) -> bytes:
        """A random topic id."""
        return self._resources.random.uuid()

    def peer(self, broker: Broker) -> OwnPeer | Peer:
        """A connection to a broker; to this one: its handlers."""
        if broker.broker_id == self._broker_id:
            assert self._requests is not None, "a term needs a start"
            return OwnPeer(self._requests)
        endpoint = self.endpoint_of(broker) or broker.endpoints[0]
        timeout_s = self._static.controller_socket_timeout_ms / 1000
        return Peer(endpoint, str(self._broker_id), self._resources.peer_dial, timeout_s)

    def endpoint_of(self, broker: Broker) -> Endpoint | None:
        """The address at which brokers reach a broker, None if it has none."""
        return endpoint_for_brokers(broker.endpoints, self._static)


def _defaults(config: BrokerConfig) -> tuple[bool, int]:
    """Those of topics that the controller uses."""
    defaults = config.topic_defaults
    return defaults.unclean_leader_election_enable, defaults.min_insync_replicas
