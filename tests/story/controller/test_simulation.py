"""Random histories of a cluster keep the invariants, and planted bugs violate one of them.

Each history prints its seed; `KAFKALITE_SEED=n` repeats it alone. `--simulations` sets the number of histories.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkalite.model import TopicPartition
from kafkalite.state.controller import brokers, contents, preferred_election, sending
from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.context import ControllerContext
from kafkalite.state.controller.controller import HANDLERS
from kafkalite.state.controller.partition_requests import PartitionRequests
from kafkalite.state.controller.partitions import actions
from kafkalite.state.controller.partitions.table import TRANSITIONS as PARTITION_TRANSITIONS
from kafkalite.state.controller.states import PartitionEvent, PartitionState
from kafkalite.state.controller.topics import events as topic_events
from kafkalite.state.controller.topics.table import TRANSITIONS as TOPIC_TRANSITIONS
from kafkalite.state.controller.values import LeaderAndIsr, Replicas
from tests.kit.counted_table import CountedTable
from tests.story.controller import tree as nodes
from tests.story.controller.runtime import EXECUTE, ControllerRuntime
from tests.story.controller.simulation import Simulation
from tests.story.controller.tree import RejectedError
from tests.story.sdk.world import seeds

RUNS = 100
BUG_SEEDS = range(1, 201)
UNUSED_MAX = 35  # of 95 rows; the others need two rare events at once, and tests/unit/state/controller takes every row


def run(seed: int, create_runtime: Callable[..., ControllerRuntime] = ControllerRuntime) -> None:
    print(f"KAFKALITE_SEED={seed}")
    Simulation(seed, create_runtime).run()


@pytest.mark.torture
def test_random_histories_keep_the_invariants(simulations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = seeds(simulations, RUNS)
    topics, partitions = CountedTable(TOPIC_TRANSITIONS), CountedTable(PARTITION_TRANSITIONS)
    monkeypatch.setattr("kafkalite.state.controller.topics.table.TRANSITIONS", topics)
    monkeypatch.setattr("kafkalite.state.controller.partitions.table.TRANSITIONS", partitions)
    for seed in runs:
        run(seed)
    unused = (topics.keys() - topics.used) | (partitions.keys() - partitions.used)
    assert len(runs) < RUNS or len(unused) <= UNUSED_MAX, sorted(map(str, unused))


def test_history_is_replayed_from_its_seed() -> None:
    def trace(seed: int) -> list[object]:
        simulation = Simulation(seed)
        commits: list[object] = []
        committed = simulation.tree.committed

        def record(writer: object, changes: Any, before: Any) -> None:
            commits.append((simulation.schedule.now_ms, [(type(each).__name__, each.path) for each in changes]))
            committed(writer, changes, before)

        simulation.tree.committed = record
        simulation.run()
        return commits

    assert trace(7) == trace(7) != trace(8)


class WritesWithoutEpochCheck(ControllerRuntime):
    """A transaction does not check the controller epoch, and nothing ends an obsolete controller."""

    def fenced(self, effect: out.Write) -> list[nodes.Change]:
        _check, *changes = super().fenced(effect)
        return [nodes.Check(nodes.EPOCH), *changes]

    def moved(self) -> None:
        """Ignored."""


class IgnoresFailedMulti(ControllerRuntime):
    """A rejected transaction counts as committed."""

    def written(self, effect: out.Write, result: object) -> None:
        if isinstance(result, RejectedError) and result.at > 0:
            self.handle(into.WriteDone(effect.write_id, (0,) * len(effect.operations)))
        else:
            super().written(effect, result)


class SendsOldStates(ControllerRuntime):
    """A failed request is sent once more as it was, after the machine has sent a newer one."""

    def send(self, effect: Any) -> None:
        super().send(effect)
        broker = self._connections[effect.broker_id]
        self.schedule.after(300, partial(self.network.send, broker, self.epoch, effect, lambda _: None))


def promise_too_early(patch: pytest.MonkeyPatch) -> None:
    """A full LeaderAndIsr is sent before all topics are read: the broker renames logs of the others."""
    patch.setattr(sending, "hosts_only_known", lambda context, broker_id: True)


def deletes_without_request(patch: pytest.MonkeyPatch) -> None:
    """The deletion of a topic begins when it is read, whether it is requested or not."""
    read = topic_events.topic_read

    def deleting(context: ControllerContext, event: into.TopicRead) -> None:
        context.deletions.add(event.topic)
        read(context, event)

    patch.setitem(HANDLERS, into.TopicRead, deleting)


def sends_the_leadership_before_the_restart(patch: pytest.MonkeyPatch) -> None:
    """A leader that has restarted is sent its old state while the next one is written."""
    patch.setattr(contents, "UNDECIDED", frozenset())


def ignores_restarts(patch: pytest.MonkeyPatch) -> None:
    """A broker that has registered again is treated as one that did not fail."""
    patch.setattr(brokers, "_note_restart", lambda *_arguments, **_named: iter(()))


def elects_any_replica(patch: pytest.MonkeyPatch) -> None:
    """A replica that is online leads, whether it is in sync or not."""

    def next_state(state: LeaderAndIsr, online: Replicas, epoch: int, **others: object) -> LeaderAndIsr | None:
        if not online or (state.leader in online and not others["restarted"]):
            return None
        return LeaderAndIsr(online[0], state.leader_epoch + 1, online, epoch)

    patch.setattr(actions, "next_state", next_state)


def keeps_the_epoch_in_preferred_elections(patch: pytest.MonkeyPatch) -> None:
    """Another replica leads in the same leader epoch."""

    def elect(state: LeaderAndIsr, preferred: int, epoch: int) -> LeaderAndIsr:
        return state._replace(leader=preferred, controller_epoch=epoch)

    patch.setattr(preferred_election, "preferred_state", elect)


def forgets_requests_during_writes(patch: pytest.MonkeyPatch) -> None:
    """A request that arrives while a state is written is never decided."""
    patch.setattr(PartitionRequests, "waits", lambda self, partition: False)


def allows_unclean_elections(patch: pytest.MonkeyPatch) -> None:
    """Replicas that are not in sync are elected whatever the configs of the topic say."""
    read = HANDLERS[into.TopicConfigsRead]
    patch.setitem(
        HANDLERS, into.TopicConfigsRead, lambda context, event: read(context, event._replace(unclean_elections=True))
    )


def keeps_eligible_replicas_that_have_lost_records(patch: pytest.MonkeyPatch) -> None:
    """Unclean starts count for members of the ISR only."""
    next_state = actions.next_state

    def electing(state: LeaderAndIsr, *arguments: Any, lossy: list[int], **named: Any) -> LeaderAndIsr | None:
        return next_state(state, *arguments, lossy=[each for each in lossy if each in state.isr], **named)

    patch.setattr(actions, "next_state", electing)


def sends_isr_changes_to_no_broker(patch: pytest.MonkeyPatch) -> None:
    """The images keep the ISR of before."""
    row = PARTITION_TRANSITIONS[PartitionState.ELECTING, PartitionEvent.ISR_WRITTEN]
    patch.setitem(
        PARTITION_TRANSITIONS, (PartitionState.ELECTING, PartitionEvent.ISR_WRITTEN), row._replace(action=actions.elect)
    )


def forgets_metadata(patch: pytest.MonkeyPatch) -> None:
    """The metadata of every seventh change is not sent."""
    change = ControllerContext.change_metadata
    counted = [0]

    def forgetting(self: ControllerContext, key: TopicPartition) -> None:
        counted[0] += 1
        if counted[0] % 7:
            change(self, key)

    patch.setattr(ControllerContext, "change_metadata", forgetting)


def found(create_runtime: Callable[..., ControllerRuntime]) -> bool:
    for seed in BUG_SEEDS:
        try:
            run(seed, create_runtime)
        except (AssertionError, KeyError) as error:  # a rule, the runtime or a table
            print(f"seed {seed}: {error!r}")
            return True
    return False


@pytest.mark.parametrize("bug", [WritesWithoutEpochCheck, IgnoresFailedMulti, SendsOldStates])
def test_planted_bug_of_the_runtime_is_found(bug: type[ControllerRuntime], monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, execute in list(EXECUTE.items()):
        if execute.__name__ in vars(bug):
            monkeypatch.setitem(EXECUTE, kind, getattr(bug, execute.__name__))
    assert found(bug)


BUGS = [
    promise_too_early,
    deletes_without_request,
    sends_the_leadership_before_the_restart,
    ignores_restarts,
    elects_any_replica,
    keeps_the_epoch_in_preferred_elections,
    forgets_requests_during_writes,
    allows_unclean_elections,
    keeps_eligible_replicas_that_have_lost_records,
    sends_isr_changes_to_no_broker,
    forgets_metadata,
]


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_of_the_machine_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    assert found(ControllerRuntime)
