"""Random histories of groups in ZooKeeper keep the invariants, and planted bugs violate one of them.

Each history prints its seed; `KAFKALITE_SEED=n` repeats it alone. `--simulations` sets the number of histories.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kafkalite_sdk.zk.membership import owner_nodes, rebalance
from kafkalite_sdk.zk.membership.effects import Positions
from kafkalite_sdk.zk.membership.state import MemberState, StreamNumbers, Watches
from kafkalite_sdk.zk.membership.steps import Commit, Procedure, Stop

from kafkalite.coordination.errors import CoordinationError
from kafkalite.testing.virtual_loop import VirtualTimeError, pass_time, run_virtually
from tests.story.sdk.world import seeds
from tests.story.zk.served_service import ServedService
from tests.story.zk.simulation import Simulation
from tests.story.zk.world import TIMEOUT_MS

RUNS = 100
SERVED_RUNS = 5
RECONNECT_MS = 3_000
BUG_SEEDS = range(1, RUNS + 1)


def run(seed: int) -> None:
    print(f"KAFKALITE_SEED={seed}")
    Simulation(seed).run()


@pytest.mark.torture
@pytest.mark.conclusive
def test_random_histories_keep_the_invariants(simulations: int) -> None:
    for seed in seeds(simulations, RUNS):
        run(seed)


@pytest.mark.torture
@pytest.mark.conclusive
def test_random_histories_over_the_served_tree(simulations: int) -> None:
    for seed in seeds(simulations, SERVED_RUNS)[: max(SERVED_RUNS, simulations // 10)]:
        print(f"KAFKALITE_SEED={seed}")
        run_virtually(partial(run_served, seed))


async def run_served(seed: int) -> None:
    simulation = Simulation(seed, lambda chance: ServedService(chance, TIMEOUT_MS), RECONNECT_MS)
    loop: Any = asyncio.get_running_loop()
    for ms in simulation.history():
        await pass_time(ms / 1000)
        for failure in (*simulation.world.service.failures, *loop.failures):
            raise failure
    await close_all(simulation)


async def close_all(simulation: Simulation) -> None:
    for member in simulation.world.members:
        if not member.ended:
            member.kill()
    await pass_time(1)


def test_history_is_replayed_from_its_seed() -> None:
    def trace(seed: int) -> list[object]:
        simulation = Simulation(seed)
        simulation.run()
        tree = simulation.world.service.tree
        return [tree.zxid, sorted(simulation.world.offsets.items()), [path for path, _ in tree.walk()]]

    assert trace(7) == trace(7)
    assert trace(7) != trace(8)


# Planted bugs.


def forgets_owners_of_a_failed_attempt(patch: pytest.MonkeyPatch) -> None:
    """The owners of a claim without a response are neither read back nor deleted."""
    create_owners = owner_nodes._create_owners

    def creating(state: MemberState, wanted: StreamNumbers) -> Procedure[BaseException | None]:
        error = yield from create_owners(state, wanted)
        state.unknown = {}
        return error

    patch.setattr(owner_nodes, "_create_owners", creating)
    patch.setattr(
        owner_nodes, "_is_ours", is_ours_outside_claims(owner_nodes._is_ours, owner_nodes._watch_owners, patch)
    )


def is_ours_outside_claims(is_ours: Any, watch_owners: Any, patch: pytest.MonkeyPatch) -> Any:
    """`_is_ours`, which is False for owners that prevent a claim."""
    claiming = []

    def watching(state: MemberState, wanted: StreamNumbers) -> Procedure[None]:
        claiming.append(state)
        try:
            yield from watch_owners(state, wanted)
        finally:
            claiming.remove(state)

    patch.setattr(owner_nodes, "_watch_owners", watching)
    return lambda state, stat: state not in claiming and is_ours(state, stat)


def commits_after_the_release(patch: pytest.MonkeyPatch) -> None:
    """The owners are deleted first, then the offsets are committed."""

    def release(state: MemberState) -> Procedure[None]:
        positions: Positions = yield Stop()
        yield from owner_nodes.delete_owners(state)
        yield Commit(positions)

    patch.setattr(rebalance, "_release", release)


def sets_a_watch_once(patch: pytest.MonkeyPatch) -> None:
    """A watch that has fired is not set again."""

    def remove(self: Watches, token: int) -> str | None:
        key = self._keys.pop(token, None)
        return None if key is None else key[1]

    patch.setattr(Watches, "remove", remove)


def deletes_owners_of_other_sessions(patch: pytest.MonkeyPatch) -> None:
    """An owner is deleted whatever session created it."""
    find_owners = owner_nodes.find_owners

    def finding(state: MemberState) -> Procedure[None]:
        before = state.held
        yield from find_owners(state)
        state.held = {**before, **state.held}

    patch.setattr(owner_nodes, "find_owners", finding)


def fetches_without_owners(patch: pytest.MonkeyPatch) -> None:
    """A member fetches although another one owns its partitions."""
    create_owners = owner_nodes.create_owners

    def creating(state: MemberState, wanted: StreamNumbers) -> Procedure[bool]:
        yield from create_owners(state, wanted)
        return True

    patch.setattr(rebalance, "create_owners", creating)


def keeps_partitions_of_a_lost_session(patch: pytest.MonkeyPatch) -> None:
    """A lost session stops nothing."""

    def stop_lost(state: MemberState) -> Procedure[None]:
        yield from ()

    patch.setattr(rebalance, "_stop_lost", stop_lost)


BUGS = [
    forgets_owners_of_a_failed_attempt,
    commits_after_the_release,
    sets_a_watch_once,
    deletes_owners_of_other_sessions,
    fetches_without_owners,
    keeps_partitions_of_a_lost_session,
]


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert is_found()


def test_planted_bug_is_found_over_the_served_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    fetches_without_owners(monkeypatch)
    with pytest.raises((AssertionError, VirtualTimeError)):
        for seed in BUG_SEEDS[:20]:
            run_virtually(partial(run_served, seed))


def is_found() -> bool:
    for seed in BUG_SEEDS:
        try:
            run(seed)
        except (AssertionError, CoordinationError) as error:
            print(f"seed {seed}: {error!r}")
            return True
    return False
