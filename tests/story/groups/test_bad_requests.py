"""Random valid and invalid requests to a shard: the errors are right, and the shard stays consistent.

Besides: a commit is taken exactly when a model says so, what is fetched is what was taken last, and generations only
grow. KAFKALITE_SEED replays one history.
"""

from collections.abc import Callable

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.classic.requests import (
    ErrorOnly,
    Heartbeat,
    Join,
    Joined,
    Leave,
    LeaveOf,
    Left,
    Sync,
    Synced,
)
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.classic.states import ClassicState
from kafkalite.state.groups.consumer.groups import ConsumerGroups
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings
from kafkalite.state.groups.machine import GroupMachine, GroupsDeleted
from kafkalite.state.groups.offsets.manager import (
    Commit,
    CommitResult,
    OffsetDeleteResult,
    OffsetSettings,
    PartitionCommit,
    TopicFetch,
)
from kafkalite.state.groups.records import TransactionEnded
from tests.kit.weighted_choice import Operations
from tests.story.groups.faults import Chaos, assert_all_is_answered
from tests.story.groups.simulated_shard import committing
from tests.unit.state.groups.test_machine import NoTopics

HISTORIES = 50
REBALANCE_MAX_MS = 20_000
NEW_MEMBER_JOIN_MS = 30_000
METADATA_MAX = 8

MEMBER = {Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID}
GENERATION = MEMBER | {Error.ILLEGAL_GENERATION, Error.REBALANCE_IN_PROGRESS}
ALLOWED: dict[type, set[Error]] = {
    Joined: MEMBER
    | {
        Error.INVALID_GROUP_ID,
        Error.INVALID_SESSION_TIMEOUT,
        Error.MEMBER_ID_REQUIRED,
        Error.INCONSISTENT_GROUP_PROTOCOL,
        Error.GROUP_MAX_SIZE_REACHED,
        Error.REBALANCE_IN_PROGRESS,
    },
    Synced: GENERATION | {Error.INCONSISTENT_GROUP_PROTOCOL, Error.INVALID_GROUP_ID},
    ErrorOnly: GENERATION | {Error.INVALID_GROUP_ID},
    Left: {Error.NONE, Error.INVALID_GROUP_ID},
    CommitResult: GENERATION | {Error.INVALID_GROUP_ID, Error.GROUP_ID_NOT_FOUND},
    OffsetDeleteResult: {Error.NONE, Error.GROUP_ID_NOT_FOUND, Error.NON_EMPTY_GROUP},
}


class Requests(Chaos):
    """Clients that send invalid and repeated requests."""

    allowed = ALLOWED
    requests = 1_000

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.members = ["", "nobody"]
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.generations: dict[str, int] = {}

    def _make(self) -> GroupMachine:
        classic = ClassicSettings(
            members_max=3,
            new_member_join_ms=NEW_MEMBER_JOIN_MS,
            topics_of=lambda raw: None if raw == b"garbage" else frozenset({"orders"}),
        )
        consumers = ConsumerGroups(NoTopics(), lambda _: ConsumerGroupSettings())
        return GroupMachine(classic, OffsetSettings(retention_ms=200_000, metadata_max=METADATA_MAX), consumers)

    def operations(self) -> Operations[object]:
        return {
            self.join: 30,
            self.sync: 30,
            self.heartbeat: 30,
            self.commit: 20,
            self.leave: 2,
            self.delete_offsets: 1,
            self.delete_groups: 1,
            self.transaction: 4,
            self.wait: 12,
            self.sweep: 2,
            self.restart: 1,
        }

    # the requests

    def join(self) -> None:
        protocols = self.pick(((), (("range", b""),), (("range", b"garbage"), ("b", b"")), (("b", b""), ("b", b"x"))))
        request = Join(
            self.group(),
            "" if self.dice.random() < 0.5 else self.member(),
            f"{self.dice.getrandbits(64):x}",
            self.mostly("consumer", "connect", ""),
            self.mostly((("range", b""), ("b", b"")), protocols),
            self.mostly(self.pick((10_000, 60_000)), 0, -1, 2**31 - 1),
            self.mostly(REBALANCE_MAX_MS, 5_000, 0, -5),
            "c",
            "h",
            self.instance(),
            member_id_required=self.dice.random() < 0.5,
            can_skip_assignment=self.dice.random() < 0.5,
        )
        self.ask(lambda machine, token, now: machine.registry.join(request, token, now))

    def sync(self) -> None:
        parts = {self.member(): b"part" for _ in range(3)}
        kind, name = self.mostly("consumer", None, "x"), self.mostly(None, "range", "b")
        group = self.group()
        request = Sync(group, self.member(), self.generation(group), parts, self.instance(), kind, name)
        self.ask(lambda machine, token, now: machine.classic.sync(request, token, now))

    def heartbeat(self) -> None:
        group = self.group()
        request = Heartbeat(group, self.member(), self.generation(group), self.instance())
        self.ask(lambda machine, token, now: machine.classic.heartbeat(request, token, now))

    def leave(self) -> None:
        request = Leave(self.group(), tuple(LeaveOf(self.member(), self.instance()) for _ in range(2)))
        self.ask(lambda machine, token, now: machine.classic.leave(request, token, now))

    def commit(self) -> None:
        name = self.group()
        offset = self.dice.randrange(1_000)
        parts = [
            PartitionCommit(
                self.pick(("orders", "other")), self.dice.randrange(2), offset, metadata=self.pick((None, "x" * 9))
            )
        ]
        request = Commit(name, parts, self.member(), self.generation(name), self.instance())
        may = self._may_commit(request)
        answer = self.shard.answers[self.ask(committing(request))]
        assert isinstance(answer, CommitResult)
        assert (answer.error == 0) == may, (request, answer)
        if answer.errors == (0,):
            self.offsets[name, parts[0].topic, parts[0].partition] = offset
        elif may:
            assert answer.errors == (Error.OFFSET_METADATA_TOO_LARGE,) and parts[0].metadata is not None

    def _may_commit(self, request: Commit) -> bool:
        group = self.shard.machine.classic.groups.get(request.group)
        if group is None or group.state is ClassicState.EMPTY:
            return request.generation < 0
        member = group.members.all.get(request.member_id)
        instance = request.group_instance_id
        return (
            member is not None
            and request.generation == group.generation
            and (instance is None or instance == member.group_instance_id)
            and group.state is not ClassicState.COMPLETING
        )

    def transaction(self) -> None:
        """A commit in a transaction, or a transaction marker; aborted commits have no effect."""
        producer = self.dice.randrange(3)
        if self.dice.random() < 0.5:
            self.append(TransactionEnded(producer, committed=False))
            return
        request = Commit(self.group(), [PartitionCommit("orders", 0, 10**6)], producer_id=producer)
        self.ask(committing(request))

    def delete_offsets(self) -> None:
        group, topic_partition = self.group(), (self.pick(("orders", "other")), 0)
        token = self.ask(lambda machine, token, now: machine.offsets.delete(group, [topic_partition], token))
        answer = self.shard.answers[token]
        if isinstance(answer, OffsetDeleteResult) and answer.errors == (0,):
            self.offsets.pop((group, *topic_partition), None)

    def delete_groups(self) -> None:
        names = [self.group(), self.group()]
        answer = self.shard.answers[self.ask(lambda m, token, now: m.delete_groups(names, token, now))]
        assert isinstance(answer, GroupsDeleted)
        for name, error in zip(names, answer.errors, strict=True):
            if not error:
                self.offsets = {key: offset for key, offset in self.offsets.items() if key[0] != name}
                assert self.shard.machine.describe(name) is None

    # the world

    def wait(self) -> None:
        self.shard.advance(self.dice.choice([1, 100, 3_000, 3_000, 12_000]))

    def sweep(self) -> None:
        machine = self.shard.machine
        self.shard.do(machine.expire_offsets(machine.names(), self.shard.now))
        self.offsets = {key: offset for key, offset in self.offsets.items() if self._fetched(key) != -1}

    def restart(self) -> None:
        before = self.shard.machine
        self.shard.restart()
        self.generations.clear()  # one that was not stored may be used again
        assert {name: before.offsets.fetch(name, None, require_stable=False) for name in before.names()} == {
            name: self.shard.machine.offsets.fetch(name, None, require_stable=False) for name in before.names()
        }

    def append(self, record: TransactionEnded) -> None:
        self.shard.do(Effects(records=[record]))

    def ask(self, command: Callable[[GroupMachine, Token, Now], Effects]) -> Token:
        token = self.shard.ask(command)
        answer = self.shard.answers.get(token)
        if isinstance(answer, Joined) and answer.member_id:
            self.members = [*self.members[:2], *self.members[2:][-8:], answer.member_id]
        return token

    def check(self) -> None:
        limit = REBALANCE_MAX_MS + 3_000
        assert all(self.shard.ms - since <= limit for since in self.shard.waiting.values())
        self.receive()
        for group in self.shard.machine.classic.groups.values():
            assert group.generation >= self.generations.get(group.name, 0), f"a generation of {group.name} went back"
        self.generations = {group.name: group.generation for group in self.shard.machine.classic.groups.values()}
        for key, offset in self.offsets.items():
            assert self._fetched(key) == offset, key

    def _fetched(self, key: tuple[str, str, int]) -> int:
        group, topic, partition = key
        (found,) = self.shard.machine.offsets.fetch(group, [TopicFetch(topic, [partition])], require_stable=False)
        return found.offset

    # what a careless client says

    def group(self) -> str:
        return self.mostly("g", "h", "simple", "")

    def member(self) -> str:
        known = [name for group in self.shard.machine.classic.groups.values() for name in group.members.all]
        return self.pick(known) if known and self.dice.random() < 0.8 else self.pick(self.members)

    def instance(self) -> str | None:
        return self.mostly(None, "i", "j")

    def generation(self, name: str) -> int:
        group = self.shard.machine.classic.groups.get(name)
        return self.pick((-1, 1, 2**31 - 1)) if group is None or self.dice.random() < 0.2 else group.generation


def test_random_requests_do_not_break_a_shard() -> None:
    assert_all_is_answered(Requests, HISTORIES)
