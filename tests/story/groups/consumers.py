"""Random consumers of the classic protocol: they join, sync, heartbeat, stop and restart."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.effects import Token
from kafkalite.state.groups.classic.groups import ClassicGroups
from kafkalite.state.groups.classic.requests import ErrorOnly, Heartbeat, Join, Joined, Leave, LeaveOf, Sync, Synced
from tests.story.groups.simulated_shard import Shard

PROTOCOLS = (
    (("range", b"r"), ("roundrobin", b"rr")),
    (("roundrobin", b"rr"), ("range", b"r")),
    (("range", b"r"), ("roundrobin", b"new")),
    (("range", b"r"),),
)
REBALANCE_MAX_MS = 20_000
STARTS_ANEW = {Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION, Error.REBALANCE_IN_PROGRESS}


@dataclass
class Consumer:
    """One client process. `step` sends its next request if the last one was answered."""

    shard: Shard[ClassicGroups]
    group: str
    dice: random.Random
    leads_generation: Callable[[str, int, str], None]  # called for each generation that this consumer must assign
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    working: bool = False
    leads: tuple[str, ...] = ()
    alive: bool = True
    pending: Token = None
    asked_in_incarnation: int = 0
    joined_in_incarnation: int = 0
    refusals: list[int] = field(default_factory=list)
    known_generation: int = -1
    holds: bytes = b""  # its assignment until it is lost
    stale: bool = False  # its partitions were rewound

    def __post_init__(self) -> None:
        self.protocols = self.dice.choice(PROTOCOLS)
        self.session_ms = self.dice.randrange(6_000, 30_000)
        self.rebalance_ms = self.dice.randrange(2_000, REBALANCE_MAX_MS)
        self.modern = self.dice.random() < 0.7

    def step(self) -> None:
        """Handle the last response and send the next request."""
        if self.pending is not None:
            if self.pending not in self.shard.answers:
                if self.generation != -1 and self.dice.random() < 0.2:
                    self._beat()  # on its other connection, while a request is delayed
                if self.dice.random() < 0.02:  # it times out, and repeats the request on another connection
                    self.pending = None
                    if self.joined_in_incarnation != self.shard.incarnations:
                        self.generation = -1  # a generation that was not stored may be used again
                return
            answer = self.shard.answers[self.pending]
            self.pending = None
            self._take(answer)
        if self.alive and self.pending is None:
            self._ask()

    def dropped(self, tokens: set[Token]) -> None:
        """The broker stopped: the pending request is repeated."""
        if self.pending in tokens:
            self.pending = None

    def leave(self) -> None:
        """Leave the group."""
        self.alive = False
        who = LeaveOf("", self.instance) if self.instance is not None else LeaveOf(self.member_id)
        self.shard.ask(lambda machine, token, now: machine.leave(Leave(self.group, (who,)), token, now))

    def _ask(self) -> None:
        self.asked_in_incarnation = self.shard.incarnations
        if self.generation == -1:
            self._join()
        elif self.dice.random() < 0.03:
            self._join()  # its subscription has changed, or the response was lost
        elif not self.working:
            self._sync()
        else:
            self.pending = self._beat()

    def _beat(self) -> Token:
        fast_heartbeat = Heartbeat(self.group, self.member_id, self.generation, self.instance)
        return self.shard.ask(lambda machine, token, now: machine.heartbeat(fast_heartbeat, token, now))

    def _join(self) -> None:
        if self.dice.random() < 0.1:
            self.protocols = self.dice.choice(PROTOCOLS)
        request = Join(
            self.group,
            self.member_id,
            f"{self.dice.getrandbits(64):x}",
            "consumer",
            self.protocols,
            self.session_ms,
            self.rebalance_ms,
            "client",
            "host",
            self.instance,
            member_id_required=self.modern,
            can_skip_assignment=self.modern,
        )
        self.pending = self.shard.ask(lambda machine, token, now: machine.join(request, token, now))

    def _sync(self) -> None:
        parts = {member: f"{self.generation}:{member}".encode() for member in self.leads}
        request = Sync(self.group, self.member_id, self.generation, parts, self.instance)
        self.pending = self.shard.ask(lambda machine, token, now: machine.sync(request, token, now))

    def _take(self, answer: object) -> None:
        assert isinstance(answer, Joined | Synced | ErrorOnly)
        if answer.error:
            self._refused(answer)
        elif isinstance(answer, Joined):
            self.member_id, self.generation = answer.member_id, answer.generation
            self.known_generation, self.joined_in_incarnation = answer.generation, self.asked_in_incarnation
            self.leads = tuple(member.member_id for member in answer.members)
            if self.leads and not answer.skip_assignment and self.asked_in_incarnation == self.shard.incarnations:
                self.leads_generation(self.group, self.generation, self.member_id)
            self.working = False
        elif isinstance(answer, Synced):
            assert self.generation >= int(answer.assignment.partition(b":")[0]), answer  # `check` says by how much
            self.holds = answer.assignment
            self.working = True

    def _refused(self, answer: Joined | Synced | ErrorOnly) -> None:
        self.refusals.append(answer.error)
        self.generation, self.working, self.leads = -1, False, ()
        if answer.error != Error.REBALANCE_IN_PROGRESS:  # else a cooperative member keeps its positions
            self.holds, self.stale = b"", False
        if answer.error == Error.MEMBER_ID_REQUIRED:
            assert isinstance(answer, Joined)
            self.member_id = answer.member_id
        elif answer.error == Error.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif answer.error not in STARTS_ANEW:
            assert answer.error in (
                Error.FENCED_INSTANCE_ID,
                Error.GROUP_MAX_SIZE_REACHED,
                Error.INCONSISTENT_GROUP_PROTOCOL,
            )
            self.alive = False
