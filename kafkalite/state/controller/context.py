"""The memory of the controller, as ControllerContext.scala, and what the current event has changed.

Actions of the tables change the context and collect work: states to write, nodes to read, partitions whose metadata
has changed. `Controller.handle` then creates the effects of the whole event, so that it costs one transaction and one
request per broker however many partitions it concerns.
"""

from typing import Literal

from kafkalite.model import TopicPartition
from kafkalite.state.controller.channel import Channel, Stop
from kafkalite.state.controller.completions import Completions
from kafkalite.state.controller.effects import Completion, Effect, Log, Operation, TopicMetadata, Write
from kafkalite.state.controller.known_topics import Partition, Topic
from kafkalite.state.controller.partition_requests import PartitionRequests
from kafkalite.state.controller.states import TopicState
from kafkalite.state.controller.steps import Steps
from kafkalite.state.controller.values import Broker, ControllerSettings, Replicas, TimerName, Token
from kafkalite.state.controller.writes import PendingWrite
from kafkalite.state.effects import CancelTimer, SetTimer

UNKNOWN_TOPICS = frozenset((TopicState.UNREAD, TopicState.WITHOUT_ID, TopicState.INVALID))
IN_DELETION = frozenset((TopicState.DELETING, TopicState.INELIGIBLE, TopicState.REMOVING))


class EventWork:
    """What an event leaves to its end, where it is done for many partitions at once.

    Attributes:
        chosen: partitions whose wanted state must be written.
        evaluated: whether the state of a partition or topic was evaluated.
        states_to_read, topics_to_read, configs_to_read: partitions, topics, topics.
        changed: partitions whose metadata has changed.
        new: partitions that no broker knows of, because their topic is being created; they stay for later events.
    """

    def __init__(self) -> None:
        self.chosen: list[Partition] = []
        self.evaluated = False
        self.states_to_read: list[Partition] = []
        self.topics_to_read: dict[str, None] = {}
        self.configs_to_read: dict[str, None] = {}
        self.changed: dict[TopicPartition, None] = {}
        self.new: dict[TopicPartition, None] = {}


class ControllerContext:
    """The memory of one elected controller.

    Attributes:
        brokers: the live brokers that support the finalized features.
        leaving: those of them that shut down.
        levels: the finalized features.
        topics: by name.
        unknown: names of the topics whose partitions are not known.
        topics_by_id: the topics whose nodes are read.
        hosted: the partitions of each broker, alive or not.
        deletions: the names below `/admin/delete_topics`.
        channels: by live broker.
        writes: transactions in flight by id.
        verifying: whether a check of the controller epoch is one of them.
        reads: partitions of each `ReadStates` in flight.
        stuck: partitions without a leader, which an unclean election could elect.
        unclean_elections: number of the states written in which a replica leads that was not in sync.
        minimums: `min.insync.replicas` of the topics that set it, of those with several replicas.
        moved: why this broker is not the controller any more.
        now_ms, effects: the time of the current event, and its effects in their order.
        metadata_of: what UpdateMetadata has of partitions, None = of all; until one of them changes.
        work: of the current event.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings
        self.brokers: dict[int, Broker] = {}
        self.leaving: set[int] = set()
        self.levels: dict[str, int] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.unknown: set[str] = set()
        self.hosted: dict[int, dict[TopicPartition, Partition]] = {}
        self.deletions: set[str] = set()
        self.channels: dict[int, Channel] = {}
        self.writes: dict[int, PendingWrite] = {}
        self.reads: dict[int, list[Partition]] = {}
        self.stuck: dict[Partition, None] = {}
        self.unclean_elections = 0
        self.minimums: dict[str, int] = {}
        self.moved: str | None = None
        self.verifying = False
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.work = EventWork()
        self.completions = Completions(self.effects)
        self.requests = PartitionRequests(self.effects)
        self.metadata_of: dict[tuple[TopicPartition, ...] | None, tuple[TopicMetadata, ...]] = {}
        self._last_id = 0

    def next_id(self) -> int:
        """An id for a write, a read or a request."""
        self._last_id += 1
        return self._last_id

    # Replicas.

    def online(self, partition: Partition) -> Replicas:
        """The assigned replicas whose broker is alive and whose log directory works, in the order of the assignment."""
        brokers = self.brokers
        if not partition.offline:
            return tuple([replica for replica in partition.replicas if replica in brokers])
        return tuple([one for one in partition.replicas if one in brokers and one not in partition.offline])

    def minimum(self, partition: Partition) -> int:
        """The effective minimum of in-sync replicas of a partition, as this controller knows it."""
        minimum = self.minimums.get(partition.key.topic, self.settings.min_insync_replicas)
        return min(minimum, len(partition.replicas))

    def candidates(self, partition: Partition) -> Replicas:
        """The replicas that are online and whose broker does not shut down."""
        online = self.online(partition)
        return tuple([one for one in online if one not in self.leaving]) if self.leaving else online

    def leader_online(self, partition: Partition) -> bool:
        """Whether the stored leader is online."""
        return partition.current is not None and partition.current.leader in self.online(partition)

    def identify(self, topic: Topic, topic_id: bytes) -> None:
        """Index a topic by its id."""
        topic.topic_id = topic_id
        self.topics_by_id[topic_id] = topic

    def host(self, partition: Partition) -> None:
        """Index a new partition by its brokers."""
        for broker in partition.replicas:
            self.hosted.setdefault(broker, {})[partition.key] = partition

    def forget(self, topic: Topic) -> Steps:
        """Remove a topic from memory."""
        del self.topics[topic.name]
        self.minimums.pop(topic.name, None)
        if self.topics_by_id.get(topic.topic_id) is topic:
            del self.topics_by_id[topic.topic_id]
        for partition in topic.partitions.values():
            self.stuck.pop(partition, None)
            for broker in partition.replicas:
                hosted = self.hosted[broker]
                if hosted.get(partition.key) is partition:
                    del hosted[partition.key]
                if not hosted:
                    del self.hosted[broker]
            yield

    # Brokers.

    def announce(self, partition: Partition, *, is_new: bool = False) -> None:
        """Send the state of a partition to its replicas on live brokers, and to all brokers as metadata.

        A replica in a failed log directory is among them once it has left the ISR and is not eligible: it may begin
        empty in another one. A broker that shuts down stops the replicas that it does not lead.
        """
        state = partition.current
        complete = () if state is None else (*state.isr, *state.eligible)
        for broker in partition.replicas:
            channel = self.channels.get(broker)
            if channel is None or (broker in partition.offline and broker in complete):
                continue
            channel.lead(partition.key, is_new=is_new)
            if broker in self.leaving:
                self.stop_follower(broker, partition)
        if is_new:
            self.work.new[partition.key] = None
        else:
            self.change_metadata(partition.key)

    def stop_follower(self, broker: int, partition: Partition) -> None:
        """Have a broker stop a replica that it does not lead, and keep its log."""
        if (channel := self.channels.get(broker)) is not None and self.follows(broker, partition):
            channel.stop(partition.key, Stop(partition.topic, partition.leader_epoch, delete=False))

    def follows(self, broker: int, partition: Partition) -> bool:
        """Whether a broker that shuts down does not lead a partition that it has a replica of."""
        state = partition.current
        return broker in self.leaving and state is not None and state.leader != broker

    def announce_to(self, broker: int, partition: Partition) -> None:
        """Send the state of a partition to one of its replicas, if that is alive."""
        if (channel := self.channels.get(broker)) is not None and broker in partition.replicas:
            channel.lead(partition.key, is_new=False)

    def change_metadata(self, key: TopicPartition) -> None:
        """Send the metadata of a partition to all brokers."""
        self.work.changed[key] = None

    # Work and effects.

    def write(self, operations: tuple[Operation, ...], pending: PendingWrite) -> int:
        """Execute a transaction; returns its id. `pending`: what its result is for."""
        write_id = self.next_id()
        self.writes[write_id] = pending
        self.effects.append(Write(write_id, operations))
        return write_id

    def complete(self, token: Token, error: int) -> None:
        """End a request with an error."""
        self.effects.append(Completion(token, error))

    def set_timer(self, name: TimerName, after_ms: int) -> None:
        """Have a timer expire after a time."""
        self.effects.append(SetTimer(name, self.now_ms + after_ms))

    def cancel_timer(self, name: TimerName) -> None:
        """Cancel a timer."""
        self.effects.append(CancelTimer(name))

    def log(self, level: Literal["info", "warning", "error"], text: str) -> None:
        """Write a line to the log of the broker."""
        self.effects.append(Log(level, text))
