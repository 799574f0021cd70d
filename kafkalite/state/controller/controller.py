"""The controller of a cluster as a pure machine: an event and the time in, effects out.

`events` says what the runtime guarantees, `effects` what it does. README.md has the tables and the invariants.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.controller import answers, brokers, loading, write_results
from kafkalite.state.controller.channel import OFFLINE, RETRY
from kafkalite.state.controller.completions import AWAIT
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.controlled_shutdown import shut_down_broker
from kafkalite.state.controller.effects import Effect, Resign
from kafkalite.state.controller.events import (
    AlterPartitions,
    AwaitDeletion,
    AwaitTopic,
    BrokersChanged,
    ConfigsChanged,
    ControllerMoved,
    DeletionsChanged,
    ElectLeaders,
    Event,
    LeaderAndIsrAnswered,
    LogDirsFailed,
    RequestFailed,
    ShutDownBroker,
    SnapshotRead,
    StatesRead,
    StopReplicaAnswered,
    TimerExpired,
    TopicConfigsRead,
    TopicRead,
    TopicsChanged,
    UpdateMetadataAnswered,
    WriteDone,
    WriteFailed,
    WriteRejected,
)
from kafkalite.state.controller.leader_rebalance import REBALANCE, rebalance_leaders
from kafkalite.state.controller.partitions import events as partition_events
from kafkalite.state.controller.partitions import state_reads as reads
from kafkalite.state.controller.partitions.state_writes import write_states
from kafkalite.state.controller.sending import send_pending
from kafkalite.state.controller.states import TopicState
from kafkalite.state.controller.steps import Steps, run_steps
from kafkalite.state.controller.topics import events as topic_events
from kafkalite.state.controller.values import NO_LEADER, ControllerSettings


def controller_moved(context: ControllerContext, event: ControllerMoved) -> None:
    """Another controller was elected."""
    context.moved = event.reason


def timer_expired(context: ControllerContext, event: TimerExpired) -> Steps:
    """A timer is due."""
    yield from run_steps(TIMERS[event.name[0]](context, event.name[1]))


TIMERS: dict[str, Callable[[ControllerContext, Any], object]] = {
    RETRY: answers.retry,
    OFFLINE: answers.retry_offline,
    write_results.WRITE: write_results.read_after_failure,
    REBALANCE: rebalance_leaders,
    AWAIT: lambda context, number: context.completions.expired(number),
}

HANDLERS: dict[type[Event], Callable[[ControllerContext, Any], object]] = {
    SnapshotRead: loading.snapshot_read,
    BrokersChanged: brokers.brokers_changed,
    TopicsChanged: topic_events.topics_changed,
    TopicRead: topic_events.topic_read,
    StatesRead: reads.states_read,
    DeletionsChanged: topic_events.deletions_changed,
    LogDirsFailed: brokers.log_dirs_failed,
    WriteDone: write_results.write_done,
    WriteRejected: write_results.write_rejected,
    WriteFailed: write_results.write_failed,
    ControllerMoved: controller_moved,
    UpdateMetadataAnswered: answers.metadata_answered,
    LeaderAndIsrAnswered: answers.leadership_answered,
    StopReplicaAnswered: answers.stops_answered,
    RequestFailed: answers.request_failed,
    TimerExpired: timer_expired,
    AwaitTopic: topic_events.await_topic,
    AwaitDeletion: topic_events.await_deletion,
    AlterPartitions: partition_events.alter_partitions,
    ElectLeaders: partition_events.elect_leaders,
    ShutDownBroker: shut_down_broker,
    TopicConfigsRead: partition_events.configs_read,
    ConfigsChanged: partition_events.configs_changed,
}


class ControllerCounts(NamedTuple):
    """The metrics of Kafka's controller: GlobalTopicCount and so on.

    Arguments:
        offline_partitions: without a leader; partitions of topics in deletion do not count.
        unclean_elections: in this term, of replicas that were not in sync.
        not_preferred: partitions without their first replica as the leader; those in deletion do not count.
    """

    topics: int
    partitions: int
    offline_partitions: int
    unclean_elections: int = 0
    not_preferred: int = 0


class Controller:
    """The machine of one elected controller; a later election needs a new one.

    Arguments:
        settings: ids, and what the configuration says.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self._context = ControllerContext(settings)
        self._ended = False

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Process an event at once; as `steps`."""
        steps = self.steps(event, now_ms)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                effects: list[Effect] = end.value
                return effects

    def steps(self, event: Event, now_ms: int) -> Generator[None, None, list[Effect]]:
        """Process an event in steps of some microseconds; the next event is reported after the last one.

        Arguments:
            event: see `events`.
            now_ms: the monotonic clock.

        Returns what the runtime does, in order. After `Resign` there are no more effects.
        """
        context = self._context
        if self._ended:
            return []
        context.now_ms = now_ms
        yield from run_steps(HANDLERS[type(event)](context, event))
        if context.moved is not None:
            return self._resign(context.moved)
        yield from write_states(context)
        reads.read_nodes(context)
        yield from send_pending(context)
        effects = list(context.effects)
        context.effects.clear()
        return effects

    def counts(self) -> ControllerCounts:
        """The metrics now; the cost is proportional to the number of partitions."""
        topics = self._context.topics.values()
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        active = [partition for partition in partitions if partition.topic.state is TopicState.ACTIVE]
        return ControllerCounts(
            len(topics),
            len(partitions),
            sum(one.current is None or one.current.leader == NO_LEADER for one in active),
            self._context.unclean_elections,
            sum(one.current is None or one.current.leader != one.replicas[0] for one in active),
        )

    @property
    def unclean_elections(self) -> int:
        """The elections of this term of replicas that were not in sync."""
        return self._context.unclean_elections

    def _resign(self, reason: str) -> list[Effect]:
        """Fail the requests of clients; nothing else of this event happens."""
        self._ended = True
        self._context.effects.clear()
        self._context.completions.fail_all(KafkaErrorCode.NOT_CONTROLLER)
        self._context.requests.fail_all(KafkaErrorCode.NOT_CONTROLLER)
        return [*self._context.effects, Resign(reason)]
