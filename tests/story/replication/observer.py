"""Observes the replicas of a simulated cluster while it runs: every change of the tree, and what the leaders show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kafkalite.coordination.tree import Create, Operation, Set
from kafkalite.errors import KafkaError
from kafkalite.storage.log.log import Log
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.replica_invariants import (
    NO_LEADER,
    Leadership,
    ObservedState,
    Partition,
    epochs_that_do_not_grow,
    epochs_with_two_leaders,
    high_watermark_above_members,
    leaders_outside_the_isr,
    truncations_of_committed,
)
from tests.kit.server import fetch_request, fetched
from tests.story.cluster.foreign_program import FOREIGN_TOPICS
from tests.story.replication.world import ReplicatedWorld

STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
SAMPLE_S = 0.05
RESPONSE_EVERY = 10  # samples


class Observer:
    """Observes one run.

    Arguments:
        world: its brokers do not run yet.

    Attributes:
        states: those of each partition in the order in which they were written.
        violations: what must not happen.
    """

    def __init__(self, world: ReplicatedWorld) -> None:
        self.states: dict[Partition, list[ObservedState]] = {}
        self.violations: list[str] = []
        self._lost: dict[int, int] = {}  # the zxid of the tree at the last loss of records, by broker id
        self._world = world
        self._leaderships: dict[Leadership, None] = {}
        self._committed: dict[Partition, int] = {}  # the highest high watermark that was seen
        self._multi = world.zookeeper.tree.multi
        world.zookeeper.tree.multi = self._observed  # type: ignore[method-assign]

    def lost_power(self, broker_id: int) -> None:
        """A broker has lost records that were not flushed, or counts as one."""
        self._lost[broker_id] = self._world.zookeeper.tree.zxid

    def counts_unclean(self) -> bool:
        """Whether a broker that has lost records still counts as complete, beside others."""
        return any(
            len(state.complete) > 1 and any(self._is_unclean(each, state) for each in state.complete)
            for state in self._world.observed_states().values()
        )

    def _is_unclean(self, broker_id: int, state: ObservedState) -> bool:
        """Whether a replica counts as complete by a registration from before its loss: the controller removes it when
        it registers again. Until then a leader may still add it, which has seen its fetches.
        """
        return broker_id in self._lost and state.epoch_of(broker_id) <= self._lost[broker_id]

    async def run(self, until: float) -> None:
        """Sample until a time of the loop."""
        samples = 0
        while self._world.loop.time() < until:
            await pass_time(SAMPLE_S)
            self.sample()
            samples += 1
            if samples % RESPONSE_EVERY == 0:
                await self._fetch()

    def sample(self) -> None:
        """Check what the leaders of this moment show."""
        for leadership, high_watermark in self._world.leaderships().items():
            self._leaderships[leadership] = None
            self._shown(leadership.partition, high_watermark)

    def check(self) -> None:
        """Raise AssertionError with the violations."""
        violations = [*self.violations, *epochs_with_two_leaders(self._leaderships)]
        for partition, states in self.states.items():
            violations += epochs_that_do_not_grow(partition, states)
        assert not violations, "\n".join(violations)

    def truncated(self, log: Log, end_offset: int) -> None:
        """The log of a replica of a running broker is about to be truncated."""
        partition = log.topic, log.partition
        for broker_id in filter(self._world.runs, self._world.brokers):
            state = self._world.observed_state(partition)
            if self._world.open_log(broker_id, partition) is log and state is not None:
                member = broker_id in state.isr and not self._is_unclean(broker_id, state)
                committed = self._committed.get(partition, 0)
                found = truncations_of_committed(partition, broker_id, end_offset, committed, member=member)
                self.violations += [f"{self._world.loop.time():.3f}: {text}" for text in found]

    async def _fetch(self) -> None:
        """Read the high watermark of a response of a leader that the tree or a broker names."""
        states = self._world.observed_states()
        if not states:
            return
        partition = self._world.random.choice(list(states))
        broker_id = self._world.random.choice(list(self._world.brokers))
        if not self._world.runs(broker_id):
            return
        request = fetch_request(partition[0], (partition[1], 0), partition_max_bytes=1)
        try:
            response = await self._world.call(broker_id, request, 12)
        except (OSError, KafkaError):
            return
        part = fetched(response)[partition]
        if not part.error_code:
            self._world.count("high watermarks of responses")
            self._shown(partition, part.high_watermark)

    def _shown(self, partition: Partition, high_watermark: int) -> None:
        state = self._world.observed_state(partition)
        if state is None:
            return
        self._committed[partition] = max(high_watermark, self._committed.get(partition, 0))
        members = [each for each in state.isr if not self._is_unclean(each, state)]
        ends = {each: self._world.end_offset(each, partition) for each in members}
        now = f"{self._world.loop.time():.3f}: "
        self.violations += [now + text for text in high_watermark_above_members(partition, high_watermark, ends)]

    def _observed(self, operations: Sequence[Operation], session_id: int, now_ms: int) -> Any:
        results = self._multi(operations, session_id, now_ms)
        for operation in operations:
            found = STATE.fullmatch(operation.path)
            if isinstance(operation, Create | Set) and found and found[1] not in FOREIGN_TOPICS:
                self._written((found[1], int(found[2])))
        return results

    def _written(self, partition: Partition) -> None:
        state = self._world.observed_state(partition)
        if state is None:
            return
        states = self.states.setdefault(partition, [])
        if states:
            self._count_change(states[-1], state)
        states.append(state)
        self.violations += leaders_outside_the_isr({partition: state})

    def _count_change(self, before: ObservedState, after: ObservedState) -> None:
        if after.leader not in (before.leader, NO_LEADER):
            self._world.count("leader changes")
        if len(after.isr) < len(before.isr):
            self._world.count("ISR shrinks")
        if len(after.isr) > len(before.isr):
            self._world.count("ISR expands")
