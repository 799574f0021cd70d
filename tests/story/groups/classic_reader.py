"""A consumer of the classic protocol, eager or cooperative, that assigns if it is the leader."""

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
    read_subscription,
    write,
)
from kafkalite.state.effects import Token
from kafkalite.state.groups.classic.requests import (
    ErrorOnly,
    Heartbeat,
    Join,
    Joined,
    JoinedMember,
    Leave,
    LeaveOf,
    Sync,
    Synced,
)
from tests.story.groups.heartbeats import heartbeat
from tests.story.groups.readers import Reader, TopicPartition, World

REBALANCE_MAX_MS = 20_000
SESSION_MAX_MS = 20_000
REJOIN = (Error.REBALANCE_IN_PROGRESS, Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID)
ENDS = (Error.FENCED_INSTANCE_ID, Error.GROUP_MAX_SIZE_REACHED, Error.INCONSISTENT_GROUP_PROTOCOL)
EAGER = (("range",), ("range", "roundrobin"), ("roundrobin", "range"))
COOPERATIVE = (("cooperative-sticky",), ("cooperative-sticky", "own"), ("own", "cooperative-sticky"))
"""Assignors of a member, in order of preference."""


class ClassicReader(Reader):
    """One client process."""

    def __init__(self, world: World, name: str, instance: str | None, topics: tuple[str, ...], eager: bool) -> None:
        super().__init__(world, name, instance)
        self.topics, self.eager = topics, eager
        self.session_ms = world.dice.randrange(6_000, SESSION_MAX_MS)
        self.rebalance_ms = world.dice.randrange(5_000, REBALANCE_MAX_MS)
        self.modern = world.dice.random() < 0.7
        self.assignors = world.dice.choice(EAGER if eager else COOPERATIVE)
        self.working = False
        self.leads: tuple[JoinedMember, ...] = ()
        self.revoked = False
        self.pending: Token = None
        self.joined_in = 0  # the restarts of the world at its last join
        self.seen: dict[str, int] = {}  # partitions of each topic when it joined

    @property
    def stable(self) -> bool:
        return self.working and not self.revoked

    def step(self) -> None:
        shard = self.world.shard
        if self.pending is not None:
            if self.pending not in shard.answers:
                self._wait()
                return
            received, self.pending = self.pending, None
            self._take(shard.answers[received], received)
        if not self.alive:
            return
        grown = self.world.sizes() != self.seen  # a leader that sees new partitions joins again
        rejoins = self.world.dice.random() < (0.7 if self.revoked else 0.02 * self.world.faults)
        if self.working and (grown or rejoins):
            self.working, self.generation = False, -1
        if self.working:
            self.pending = self._beat()
        elif self.generation == -1:
            self._join()
        else:
            self._sync()

    def _wait(self) -> None:
        """The response is delayed: heartbeats use another connection, and some requests time out and are repeated."""
        if self.generation != -1 and self.world.dice.random() < 0.2:
            self._beat()
        if self.world.faults and self.world.dice.random() < 0.02:
            self.pending = None

    def _beat(self) -> Token:
        request = Heartbeat(self.world.group, self.member_id, self.generation, self.instance)
        return self.world.shard.ask(lambda machine, token, now: heartbeat(machine, request, token, now))

    def dropped(self, tokens: set[Token]) -> None:
        if self.pending in tokens:
            self.pending = None

    def leave(self) -> None:
        self.alive = False
        self.own(set())
        gone = LeaveOf("", self.instance) if self.instance is not None else LeaveOf(self.member_id)
        request = Leave(self.world.group, (gone,))
        self.world.shard.ask(lambda machine, token, now: machine.registry.leave(request, token, now))

    def _join(self) -> None:
        self.seen, self.joined_in = self.world.sizes(), self.world.restarts
        if self.eager:
            self.own(set())
        if self.world.dice.random() < 0.5:
            self.send()  # otherwise it uses another connection and arrives after the join
        if self.world.dice.random() < 0.1:
            self.assignors = self.world.dice.choice(EAGER if self.eager else COOPERATIVE)
        owned = [_Owned(topic=t, partitions=[p]) for t, p in sorted(self.positions)]
        metadata = write(
            ConsumerProtocolSubscription(
                topics=list(self.topics), owned_partitions=owned, generation_id=-1 if self.eager else self.owns_in
            )
        )
        request = Join(
            self.world.group,
            self.member_id,
            f"{self.name}-{self.world.dice.getrandbits(32):x}",
            "consumer",
            tuple((name, metadata) for name in self.assignors),
            self.session_ms,
            self.rebalance_ms,
            "c",
            "h",
            self.instance,
            member_id_required=self.modern,
            can_skip_assignment=self.modern,
        )
        self.pending = self.world.shard.ask(lambda machine, token, now: machine.registry.join(request, token, now))

    def _sync(self) -> None:
        parts = {}
        if self.leads:
            parts = _assign(self.world, self.leads, self.generation, eager=self.eager)
            self.world.sizes_at_assignment = self.world.sizes()
        request = Sync(self.world.group, self.member_id, self.generation, parts, self.instance)
        self.pending = self.world.shard.ask(lambda machine, token, now: machine.registry.sync(request, token, now))

    def _take(self, answer: object, received: Token) -> None:
        assert isinstance(answer, Joined | Synced | ErrorOnly)
        if answer.error:
            self._refused(answer)
        elif isinstance(answer, Joined):
            self.member_id, self.generation = answer.member_id, answer.generation
            self.leads = () if answer.skip_assignment else answer.members
            if answer.members:
                name = self.instance or answer.member_id
                leader = self.world.leaders.setdefault((self.joined_in, answer.generation), name)
                assert leader == name, "a generation has two leaders"
            if self.owns_in == -1 and self.instance is not None and answer.leader and not self.leads:
                # A restarted static member receives an assignment from before it read the topics: it rejoins for later
                # partitions. Java's consumer does not, and they have no owner until the next rebalance.
                self.seen = self.world.sizes_at_assignment
        elif isinstance(answer, Synced):
            assignment = read_assignment(answer.assignment)
            of = self.world.assigned.setdefault((self.joined_in, self.generation), assignment.user_data)
            assert assignment.user_data == of, "assignments of several generations"
            assigned = assignment.assigned_partitions
            topic_partitions = {(each.topic, partition) for each in assigned for partition in each.partitions}
            had = set(self.positions)
            if self.generation > self.owns_in + 1:
                # A static member missed a generation in which its partitions may have had another owner. The group
                # accepts its commits nevertheless, as in Kafka: the client must not send them.
                self.positions.clear()
            elif self.generation == self.owns_in:
                self.send()  # earlier and later commits of this generation cannot be distinguished
            self.owns_in, self.working = self.generation, True
            self.own(topic_partitions, received)
            self.revoked = bool(
                had - topic_partitions
            )  # others may be assigned the revoked partitions: it joins again soon

    def _refused(self, answer: Joined | Synced | ErrorOnly) -> None:
        before, self.working, self.leads = self.generation, False, ()
        if answer.error == Error.MEMBER_ID_REQUIRED:
            assert isinstance(answer, Joined)
            self.member_id = answer.member_id
            return
        assert answer.error in REJOIN + ENDS, Error(answer.error)
        if answer.error == Error.REBALANCE_IN_PROGRESS:
            if self.eager and before != -1:
                self.own(set())
        else:
            self.lose()
        self.generation = -1
        self.member_id = "" if answer.error == Error.UNKNOWN_MEMBER_ID else self.member_id
        self.alive = answer.error not in ENDS


_Owned = ConsumerProtocolSubscription.TopicPartition
_Given = ConsumerProtocolAssignment.TopicPartition


def _assign(world: World, members: tuple[JoinedMember, ...], generation: int, *, eager: bool) -> dict[str, bytes]:
    """Assign all partitions, with the generation in the user data.

    A cooperative leader does not assign partitions that another member still owns.
    """
    read = {member.member_id: read_subscription(member.metadata) for member in members}
    claims: dict[TopicPartition, tuple[int, str]] = {}
    for member_id, subscription in sorted(read.items()):
        for each in subscription.owned_partitions:
            for partition in each.partitions:
                claim = (subscription.generation_id, member_id)
                claims[each.topic, partition] = max(claim, claims.get((each.topic, partition), claim))
    given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in sorted(read)}
    for name, topic in sorted(world.topics.topics.items()):
        readers = [member_id for member_id in given if name in read[member_id].topics]
        for partition in range(topic.partitions if readers else 0):
            chosen = min(readers, key=lambda member_id: len(given[member_id]))
            owner = claims.get((name, partition), (0, chosen))[1]
            if eager or owner == chosen or owner not in readers:
                given[chosen].append((name, partition))
            elif len(given[owner]) <= len(given[chosen]) + 1:
                given[owner].append((name, partition))
    return {
        member_id: write(
            ConsumerProtocolAssignment(
                assigned_partitions=[_Given(topic=t, partitions=[p]) for t, p in topic_partitions],
                user_data=b"%d" % generation,
            )
        )
        for member_id, topic_partitions in given.items()
    }
