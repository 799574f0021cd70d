"""The bound on the memory of members of classic groups holds over all shards of a broker."""

from typing import cast

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.groups.classic.groups import ClassicGroups
from kafkalite.state.groups.classic.requests import Join, Joined, Sync
from kafkalite.state.groups.classic.settings import ClassicSettings
from kafkalite.state.groups.member_memory import MEMBER_BYTES, MachineMemory, MemberMemory
from tests.story.groups.simulated_shard import Shard

KIB = 1024
SESSION_MS = 10_000
TWO_MEMBERS = 2 * (MEMBER_BYTES + 100) + 10 * KIB


class Broker:
    """Two shards, whose machines share one limit."""

    def __init__(self, limit: int) -> None:
        self.refusals = 0
        self.memory = MemberMemory(limit, self._refused)
        self.shards = [Shard(self._machine), Shard(self._machine)]
        self._ids = 0

    def _refused(self) -> None:
        self.refusals += 1

    def _machine(self) -> ClassicGroups:
        return ClassicGroups(ClassicSettings(initial_delay_ms=0), MachineMemory(self.memory))

    def join(self, shard: int, metadata: int, member_id: str = "", group: str = "g", **changes: object) -> int:
        """Send a join with metadata of a size; returns the token."""
        self._ids += 1
        request = Join(
            group=group,
            member_id=member_id,
            fresh_id=str(self._ids),
            protocol_type="consumer",
            protocols=(("range", bytes(metadata)),),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            client_id="c",
            client_host="127.0.0.1",
        )._replace(**changes)
        return cast("int", self.shards[shard].ask(lambda machine, token, now: machine.join(request, token, now)))

    def joined(self, shard: int, metadata: int, member_id: str = "", group: str = "g", **changes: object) -> Joined:
        """The result of a join that is not delayed."""
        return cast("Joined", self.shards[shard].answers[self.join(shard, metadata, member_id, group, **changes)])

    def stable(self, shard: int, metadata: int, group: str = "g") -> str:
        """A group of one member, Stable in its first generation; return the member id."""
        token = self.join(shard, metadata, group=group, member_id_required=False)
        self.shards[shard].advance(0)
        joined = cast("Joined", self.shards[shard].answers[token])
        assert joined.error == 0
        sync = Sync(group, joined.member_id, joined.generation, {joined.member_id: b"1"})
        self.shards[shard].ask(lambda machine, token, now: machine.sync(sync, token, now))
        return joined.member_id

    def restart(self, shard: int) -> None:
        self.shards[shard].machine.ended()
        self.shards[shard].restart()


def test_joins_beyond_the_limit_are_rejected_in_every_shard() -> None:
    broker = Broker(TWO_MEMBERS)
    broker.stable(0, 10 * KIB)
    assert broker.joined(1, 10 * KIB).error == Error.GROUP_MAX_SIZE_REACHED
    assert broker.refusals == 1
    assert "g" not in broker.shards[1].machine.groups, "a rejected first join leaves no group"
    broker.stable(1, 10)


def test_reserved_member_ids_count_until_they_expire() -> None:
    broker = Broker(3 * (MEMBER_BYTES + 100))
    answers = [broker.joined(at % 2, 1, group=f"g{at}").error for at in range(4)]
    assert answers == [Error.MEMBER_ID_REQUIRED] * 3 + [Error.GROUP_MAX_SIZE_REACHED]
    for shard in broker.shards:
        shard.advance(SESSION_MS)
    assert broker.memory.held == 0
    assert broker.joined(1, 1).error == Error.MEMBER_ID_REQUIRED


def test_reserved_member_id_is_counted_once_after_join() -> None:
    broker = Broker(MEMBER_BYTES + 100)
    member_id = broker.joined(0, 1).member_id
    broker.join(0, 1, member_id)
    assert broker.refusals == 0 and broker.memory.held <= MEMBER_BYTES + 100


def test_members_that_leave_release_their_memory() -> None:
    broker = Broker(TWO_MEMBERS)
    broker.stable(0, 10 * KIB)
    broker.shards[0].advance(2 * SESSION_MS)
    assert broker.memory.held == 0
    broker.stable(1, 10 * KIB)


def test_a_rejoin_that_grows_beyond_the_limit_removes_the_member() -> None:
    broker = Broker(TWO_MEMBERS)
    member_id = broker.stable(0, 10 * KIB)
    assert broker.joined(0, 20 * KIB, member_id).error == Error.GROUP_MAX_SIZE_REACHED
    assert broker.joined(0, 10, member_id).error == Error.UNKNOWN_MEMBER_ID
    assert broker.memory.held == 0


def test_a_rejoin_that_does_not_grow_is_accepted_above_the_limit() -> None:
    broker = Broker(TWO_MEMBERS)
    member_id = broker.stable(0, 10 * KIB)
    broker.memory.limit = 1
    token = broker.join(0, 10 * KIB, member_id)
    assert cast("Joined", broker.shards[0].answers[token]).error == 0


def test_replay_counts_same_memory() -> None:
    broker = Broker(TWO_MEMBERS + 2 * MEMBER_BYTES)
    broker.stable(0, 10 * KIB)
    broker.stable(0, 10, group="other")
    broker.stable(1, 10)
    before = broker.memory.held
    assert before > 10 * KIB
    broker.restart(0)
    broker.restart(1)
    assert broker.memory.held == before
    assert broker.joined(1, 10 * KIB, group="third").error == Error.GROUP_MAX_SIZE_REACHED


def test_abandoned_replay_releases_memory() -> None:
    broker = Broker(TWO_MEMBERS)
    broker.stable(0, 10 * KIB)
    before = broker.memory.held
    broker.shards[0].replayed()
    assert broker.memory.held == before


def test_metadata_of_the_generation_counts_until_the_next_one() -> None:
    """A member that rejoins with less metadata during a rebalance still counts the metadata of the generation."""
    broker = Broker(10 * TWO_MEMBERS)
    static = {"group_instance_id": "i", "member_id_required": False}
    broker.join(0, 10, **static)
    first = broker.join(0, 10 * KIB, member_id_required=False)
    broker.shards[0].advance(0)
    joined = cast("Joined", broker.shards[0].answers[first])
    assert joined.error == 0
    broker.join(0, 1, joined.member_id)
    assert broker.memory.held > 10 * KIB
    broker.shards[0].advance(SESSION_MS)
    assert broker.memory.held < 10 * KIB
