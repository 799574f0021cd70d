"""A consumer of the consumer protocol (KIP-848), which revokes partitions as requested."""

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.effects import Token
from kafkalite.state.groups.consumer.requests import LEAVE_EPOCH, ConsumerGroupHeartbeat, HeartbeatResult
from tests.story.groups.heartbeats import consumer_heartbeat
from tests.story.groups.readers import Reader, TopicPartition, World

STARTS_ANEW = (Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH, Error.GROUP_ID_NOT_FOUND)
ENDS = (Error.FENCED_INSTANCE_ID, Error.UNRELEASED_INSTANCE_ID, Error.GROUP_MAX_SIZE_REACHED)


class ConsumerReader(Reader):
    """One client process."""

    def __init__(self, world: World, name: str, instance: str | None, topics: tuple[str, ...]) -> None:
        super().__init__(world, name, instance)
        self.topics = topics
        self.member_id, self.generation = name, 0
        self.reports = False  # its partitions have changed since its last report
        self.resubscribes = False
        self.rejected = 0

    @property
    def stable(self) -> bool:
        return self.generation > 0 and not self.reports

    def step(self) -> None:
        joins = self.generation == 0
        if joins:
            self.send()  # on one connection they arrive first: its id stays, and epochs restart with a new group
        owned = self._owned() if joins or self.reports or self.resubscribes else None
        names = self.topics if joins or self.resubscribes else None
        request = ConsumerGroupHeartbeat(
            self.world.group, self.member_id, self.generation, self.instance, owned=owned,
            rebalance_timeout_ms=15_000 if joins else -1, subscribed_topic_names=names,
        )  # fmt: skip
        self.resubscribes = False
        token = self._ask(request)
        result = self.world.shard.answers[token]
        assert isinstance(result, HeartbeatResult)
        self._take(result, token)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Read other topics. Partitions of the others are revoked at once; their commits may be late."""
        self.topics = topics
        self.resubscribes = True
        self.own({topic_partition for topic_partition in self.positions if topic_partition[0] in topics})

    def leave(self) -> None:
        self.alive = False
        self.own(set())
        self._ask(ConsumerGroupHeartbeat(self.world.group, self.member_id, LEAVE_EPOCH, self.instance))

    def _ask(self, request: ConsumerGroupHeartbeat) -> Token:
        return self.world.shard.ask(lambda machine, token, now: consumer_heartbeat(machine, request, token, now))

    def _take(self, result: HeartbeatResult, received: Token) -> None:
        if result.error:
            assert result.error in STARTS_ANEW + ENDS, result
            self.rejected += result.error == Error.GROUP_ID_NOT_FOUND
            self.lose()
            self.generation, self.reports = 0, False
            self.alive = result.error not in ENDS and self.rejected < 3
            return
        self.generation = self.owns_in = result.member_epoch
        self.reports = False
        if result.assignment is not None:
            before, topic_partitions = set(self.positions), self._topic_partitions(result)
            if any(sent.positions.keys() & (topic_partitions - before) for sent in self.outbox):
                self.send()  # earlier and later commits of these partitions cannot be distinguished
            self.own(topic_partitions, received)
            self.reports = before != set(self.positions)

    def _topic_partitions(self, result: HeartbeatResult) -> set[TopicPartition]:
        assert result.assignment is not None
        named = {topic.topic_id: topic.name for topic in self.world.topics.topics.values()}
        return {(named[topic_id], partition) for topic_id, held in result.assignment.items() for partition in held}

    def _owned(self) -> dict[bytes, frozenset[int]]:
        owned: dict[bytes, set[int]] = {}
        for name, partition in self.positions:
            owned.setdefault(self.world.topics.topics[name].topic_id, set()).add(partition)
        return {topic_id: frozenset(held) for topic_id, held in owned.items()}
