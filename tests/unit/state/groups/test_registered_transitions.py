"""Every transition of a registered group: the requests that lead to it, and their results."""

from collections.abc import Callable

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.groups.records import GroupDeleted, GroupGeneration, RewindMark
from kafkalite.state.groups.registered import groups
from kafkalite.state.groups.registered.states import RegisteredEvent, RegisteredState
from kafkalite.state.groups.registered.table import TRANSITIONS
from tests.kit.counted_table import CountedTable
from tests.unit.state.groups.registered_rig import REBALANCE_MS, SESSION_MS, Rig

EMPTY, PREPARING, STABLE, DEAD = (
    RegisteredState.EMPTY,
    RegisteredState.PREPARING,
    RegisteredState.STABLE,
    RegisteredState.DEAD,
)
ALL_PARTITIONS = {("a", number) for number in range(4)}
CLAIM = {("a", 3), ("b", 0)}
REBALANCE = (Error.REBALANCE_IN_PROGRESS, -1)

Case = Callable[[Rig], None]
CASES: dict[tuple[RegisteredState, RegisteredEvent], Case] = {}


def row(state: RegisteredState, event: RegisteredEvent) -> Callable[[Case], Case]:
    """Register the case of a row, which asserts the results. The test asserts that the row was taken."""

    def add(case: Case) -> Case:
        CASES[state, event] = case
        return case

    return add


@row(EMPTY, RegisteredEvent.DEFINED)
def defined(rig: Rig) -> None:
    assert not rig.create(assignor="range")
    assert rig.group.definition.assignor == "range" and rig.shard.log == [rig.group.definition]


@row(EMPTY, RegisteredEvent.REGISTERED)
def first_comes(rig: Rig) -> None:
    answer = rig.register("x", "a")
    assert (answer.error, answer.generation) == (0, 1) and rig.owned("x") == ALL_PARTITIONS


@row(EMPTY, RegisteredEvent.CLAIMED)
def first_claims(rig: Rig) -> None:
    assert rig.register("x", claims=CLAIM).generation == 1
    assert rig.owned("x") == CLAIM and rig.group.state is STABLE


@row(EMPTY, RegisteredEvent.TOPICS_CHANGED)
def topics_change_for_nobody(rig: Rig) -> None:
    rig.create()
    rig.shard.restart()
    assert rig.group.state is EMPTY and rig.group.generation == 0


@row(EMPTY, RegisteredEvent.REWOUND)
def rewound_for_nobody(rig: Rig) -> None:
    rig.create()
    rig.rewind(("a", 1))
    assert RewindMark("g", "a", 1, 1) in rig.shard.log and rig.group.generation == 1


@row(EMPTY, RegisteredEvent.DELETED)
def deleted(rig: Rig) -> None:
    rig.create()
    assert not rig.delete()
    assert not rig.exists() and rig.shard.log[-1] == GroupDeleted("g", "registered")


@row(PREPARING, RegisteredEvent.REGISTERED)
def others_register(rig: Rig) -> None:
    rig.begin("x")
    waiting = rig.ask("y", "a")
    assert rig.group.state is PREPARING and waiting not in rig.shard.answers
    assert rig.register("x", "a").generation == rig.answer(waiting).generation == 2
    assert rig.owned("x") | rig.owned("y") == ALL_PARTITIONS and not rig.owned("x") & rig.owned("y")


@row(PREPARING, RegisteredEvent.REPEATED)
def claimant_asks_again(rig: Rig) -> None:
    rig.register("c", claims=CLAIM)
    rig.begin("x")
    rig.ask("y", "a")
    answer = rig.register("c", claims=CLAIM)
    assert not answer.error and rig.group.state is PREPARING and rig.owned("c") == CLAIM


@row(PREPARING, RegisteredEvent.CLAIMED)
def claims_do_not_wait(rig: Rig) -> None:
    rig.begin("x")
    rig.ask("y", "a")
    assert rig.register("c", claims=CLAIM).generation == 2
    assert rig.group.state is PREPARING and rig.owned("x") == ALL_PARTITIONS - CLAIM


@row(PREPARING, RegisteredEvent.MEMBER_LEFT)
def the_late_one_leaves(rig: Rig) -> None:
    rig.begin("x")
    waiting = rig.ask("y", "a")
    assert rig.leave("x") == [0]
    assert rig.answer(waiting).generation == 2 and rig.owned("y") == ALL_PARTITIONS


@row(PREPARING, RegisteredEvent.CLAIMING_MEMBER_LEFT)
def a_claimant_leaves_meanwhile(rig: Rig) -> None:
    rig.register("c", claims=CLAIM)
    rig.begin("x")
    waiting = rig.ask("y", "a")
    rig.leave("c")
    assert rig.group.state is PREPARING and not rig.group.claims
    rig.ask("x", "a")
    assert not rig.answer(waiting).error and rig.owned("x") | rig.owned("y") == ALL_PARTITIONS


@row(PREPARING, RegisteredEvent.NO_MEMBERS)
def all_leave_meanwhile(rig: Rig) -> None:
    rig.begin("x")
    waiting = rig.ask("y", "a")
    rig.ask("x", "a", "b")
    rig.begin("x", "y")
    rig.ask("z", "a")
    assert rig.leave("z", "x", "y") == [0, 0, 0] and rig.group.state is EMPTY
    assert not rig.answer(waiting).error and not rig.shard.waiting and not rig.shard.timers


@row(PREPARING, RegisteredEvent.NO_MEMBERS_EPHEMERAL)
def an_ephemeral_group_ends_before_it_began(rig: Rig) -> None:
    rig.create(topics=(), pattern="a.*", ephemeral=True)
    waiting = rig.ask("x")
    rig.leave("x")
    assert not rig.exists() and rig.answer(waiting).error == Error.UNKNOWN_MEMBER_ID and not rig.shard.timers


@row(PREPARING, RegisteredEvent.TOPICS_CHANGED)
def the_pattern_was_waited_for(rig: Rig) -> None:
    rig.create(topics=(), pattern="a.*")
    waiting = rig.ask("x")
    assert waiting not in rig.shard.answers
    rig.resolve("a")
    assert rig.answer(waiting).generation == 1 and rig.owned("x") == ALL_PARTITIONS


@row(PREPARING, RegisteredEvent.ALL_REGISTERED)
def all_register(rig: Rig) -> None:
    rig.begin("x", "y")
    stored = rig.shard.log[-1]
    assert isinstance(stored, GroupGeneration) and stored.generation == 2
    assert {member.consumer_id for member in stored.members} == {"x", "y"}


@row(PREPARING, RegisteredEvent.REBALANCE_TIMEOUT)
def somebody_is_late(rig: Rig) -> None:
    rig.begin("x")
    waiting = rig.ask("y", "a")
    for _ in range(REBALANCE_MS // 5_000):
        assert rig.fast_heartbeat("x", 1) == REBALANCE  # busy, and alive
        rig.shard.advance(5_000)
    assert rig.answer(waiting).generation == 2 and rig.owned("y") == ALL_PARTITIONS
    assert rig.fast_heartbeat("x", 1) == (Error.UNKNOWN_MEMBER_ID, -1)


@row(PREPARING, RegisteredEvent.HEARTBEAT)
def who_waits_says_that_it_is_alive(rig: Rig) -> None:
    rig.begin("x")
    rig.ask("y", "a")
    assert rig.fast_heartbeat("y", -1) == (0, -1)


@row(PREPARING, RegisteredEvent.STALE_HEARTBEAT)
def who_is_waited_for_says_that_it_is_alive(rig: Rig) -> None:
    rig.begin("x")
    rig.ask("y", "a")
    assert rig.fast_heartbeat("x", 1) == REBALANCE


@row(PREPARING, RegisteredEvent.REWOUND)
def rewound_meanwhile(rig: Rig) -> None:
    rig.begin("x")
    waiting = rig.ask("y", "a")
    rig.rewind(*ALL_PARTITIONS, offset=1)
    assert rig.group.generation == 2 and rig.commit("x", 1, ("a", 0)) == [Error.ILLEGAL_GENERATION]
    assert rig.register("x", "a").partitions["a"].keys().isdisjoint(rig.answer(waiting).partitions["a"])
    assert set(rig.answer(waiting).partitions["a"].values()) == {1}


@row(STABLE, RegisteredEvent.REGISTERED)
def another_one_comes(rig: Rig) -> None:
    rig.begin("x")
    rig.ask("y", "a")
    assert rig.group.state is PREPARING and list(rig.group.unregistered) == ["x"]


@row(STABLE, RegisteredEvent.REPEATED)
def a_member_asks_again(rig: Rig) -> None:
    rig.begin("x", "y")
    before = rig.owned("x")
    assert rig.register("x", "a").generation == 3 and rig.owned("x") == before
    assert rig.fast_heartbeat("y", 2) == (0, 3)
    assert rig.commit("x", 2, *before) == [Error.ILLEGAL_GENERATION] * 2 and rig.commit("x", 3, *before) == [0, 0]


@row(STABLE, RegisteredEvent.CLAIMED)
def claims_are_taken_from_the_assignment(rig: Rig) -> None:
    rig.begin("x", "y")
    loser, other = ("x", "y") if ("a", 3) in rig.owned("x") else ("y", "x")
    assert rig.register("c", claims=CLAIM).generation == 3
    assert rig.fast_heartbeat(loser, 2) == REBALANCE and rig.fast_heartbeat(other, 2) == (0, 3)
    assert rig.commit(loser, 2, ("a", 3)) == [Error.ILLEGAL_GENERATION]
    assert rig.register(loser, "a").generation == 3 and rig.owned(loser) == ALL_PARTITIONS - CLAIM - rig.owned(other)


@row(STABLE, RegisteredEvent.MEMBER_LEFT)
def a_member_is_silent(rig: Rig) -> None:
    rig.begin("x", "y")
    rig.shard.advance(SESSION_MS // 2)
    rig.fast_heartbeat("x", 2)
    rig.shard.advance(SESSION_MS // 2)
    assert rig.group.state is PREPARING and list(rig.group.members) == ["x"]
    assert rig.register("x", "a").generation == 3 and rig.owned("x") == ALL_PARTITIONS


@row(STABLE, RegisteredEvent.CLAIMING_MEMBER_LEFT)
def a_claimant_leaves(rig: Rig) -> None:
    rig.begin("x")
    rig.register("c", claims={("b", 0)})
    rig.leave("c")
    assert rig.group.state is STABLE and rig.fast_heartbeat("x", 1) == (0, 3)


@row(STABLE, RegisteredEvent.NO_MEMBERS)
def the_last_one_leaves(rig: Rig) -> None:
    rig.begin("x")
    rig.leave("x")
    assert rig.group.state is EMPTY and not rig.shard.timers
    assert rig.shard.log[-1] == GroupGeneration("g", 1, rig.shard.now.wall_ms, ())


@row(STABLE, RegisteredEvent.NO_MEMBERS_EPHEMERAL)
def an_ephemeral_group_ends(rig: Rig) -> None:
    rig.create(ephemeral=True)
    rig.register("x")
    rig.commit("x", 1, ("a", 0))
    rig.shard.advance(SESSION_MS)
    assert not rig.exists() and not rig.shard.timers
    assert not rig.shard.replayed().names()


@row(STABLE, RegisteredEvent.TOPICS_CHANGED)
def partitions_are_added(rig: Rig) -> None:
    rig.begin("x")
    rig.topics.grow("a", 5)
    rig.change_topics("a")
    assert rig.fast_heartbeat("x", 1) == REBALANCE
    assert rig.register("x", "a").partitions == {"a": {0: -1, 1: -1, 2: -1, 3: -1, 4: -2}}


@row(STABLE, RegisteredEvent.HEARTBEAT)
def a_member_is_alive(rig: Rig) -> None:
    rig.begin("x")
    records = len(rig.shard.log)
    assert rig.fast_heartbeat("x", 1) == (0, 1) and len(rig.shard.log) == records


@row(STABLE, RegisteredEvent.STALE_HEARTBEAT)
def an_owner_has_not_received_the_rewind(rig: Rig) -> None:
    rig.begin("x", "y")
    (first, *_) = sorted(rig.owned("x"))
    rig.rewind(first)
    assert rig.fast_heartbeat("x", 2) == REBALANCE and rig.fast_heartbeat("y", 2) == (0, 3)


@row(STABLE, RegisteredEvent.REWOUND)
def an_owner_is_rewound(rig: Rig) -> None:
    rig.begin("x", "y")
    (first, second) = sorted(rig.owned("x"))
    rig.rewind(first, offset=2)
    assert rig.commit("x", 2, first, second) == [Error.ILLEGAL_GENERATION, 0]
    answer = rig.register("x", "a")
    assert answer.generation == 3 and answer.partitions == {"a": {first[1]: 2, second[1]: 5}}
    assert rig.commit("x", 3, first) == [0] and rig.group.state is STABLE


@pytest.mark.parametrize("key", TRANSITIONS, ids=lambda key: f"{key[0].value}-{key[1].name}")
def test_transition(key: tuple[RegisteredState, RegisteredEvent], monkeypatch: pytest.MonkeyPatch) -> None:
    taken = CountedTable(TRANSITIONS)
    monkeypatch.setattr(groups, "TRANSITIONS", taken)
    CASES[key](Rig())
    assert key in taken.used
