"""Carries out the changes of a member's assignment: fetching ends, commits, listeners, new positions.

Invariants:
1. Records of a partition that is taken away are not returned any more, before its offsets are committed and the
   listener is called.
2. Each step is done once, also if the task that polls is cancelled: the next poll continues with the next step, or with
   the wait for handlers of streams.
3. A listener that raises does not stop the change; the first exception is raised by the poll after the last step.
4. One task at a time carries out a change.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from kafkalite.errors import ClientUseError, KafkaTimeoutError
from kafkalite.model import TopicPartition
from kafkalite_sdk.consumer.application_calls import application_call
from kafkalite_sdk.consumer.driver import AnyDriver, Limit, ReturnedRecords
from kafkalite_sdk.consumer.group_requests import GroupRequests
from kafkalite_sdk.consumer.listeners import Partitions, RebalanceListener, call_listener
from kafkalite_sdk.consumer.offsets.auto_commit import AutoCommit
from kafkalite_sdk.consumer.offsets.offset_reset import Loss, ResetPolicy, replacement
from kafkalite_sdk.consumer.offsets.positions import PartitionState
from kafkalite_sdk.membership.settings import AssignmentChange

Assigned = frozenset[TopicPartition]


class AssignmentChanges:
    """The changes of one consumer.

    Arguments:
        driver: of the consumer.
        group: the requests to the coordinator.
        auto_commit: commits before partitions are revoked, None = the application commits.

    Attributes:
        listener: of the application.
        commit_on_revoke: False while an exception closes the consumer.
        deadline: until then the steps of a change may wait, in seconds of the loop's clock, then a listener is
            cancelled; None = commits have the usual time, listeners any.
    """

    def __init__(self, driver: AnyDriver, group: GroupRequests, auto_commit: AutoCommit | None) -> None:
        self.listener = RebalanceListener()
        self.commit_on_revoke = True
        self.deadline: float | None = None
        self._driver = driver
        self._group = group
        self._auto_commit = auto_commit
        self._begun: AssignmentChange | None = None
        self._steps: deque[Callable[[], Awaitable[None]]] = deque()
        self._error: Exception | None = None
        self._busy = False
        self._limit: Limit | None = None  # of the listener that runs
        self._until: float | None = None  # a close or unsubscribe waits until then

    @property
    def pending(self) -> bool:
        """Whether there is a change to carry out."""
        return self._group.membership.change is not None

    @property
    def busy(self) -> bool:
        """Whether a change is carried out."""
        return self._busy

    def limit(self, deadline: float | None) -> None:
        """Cancel each listener that has not returned at a time of the loop's clock; None = there is no such limit."""
        self._until = deadline
        if deadline is not None and self._limit is not None and not self._limit.expired():
            when = self._limit.when()
            if when is None or deadline < when:
                self._limit.reschedule(deadline)

    async def carry_out(self) -> None:
        """Carry out the changes that the membership has decided.

        Raises: what a listener raised. ClientUseError: a listener runs in another task.
        """
        if self._busy:
            raise ClientUseError("the assignment is being changed, and a listener runs; wait until it has returned")
        self._busy = True
        try:
            await self._carry_out()
        finally:
            self._busy = False
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    async def _carry_out(self) -> None:
        while (change := self._group.membership.change) is not None:
            if self._begun is not change:
                self._begun = change
                self._begin(change)
            while self._steps:
                await self._steps.popleft()()
            self._group.membership.change_done(self._driver.now())
            self._driver.use_topics()

    def _begin(self, change: AssignmentChange) -> None:
        """Determine the steps."""
        driver, listener, steps = self._driver, self.listener, self._steps
        taken = change.lost | change.revoked
        driver.positions.begin_revocation(taken)
        driver.iteration.hold(taken)
        if change.lost:
            if driver.streams is not None:
                driver.streams.lost(change.lost)
            self._group.commits.revoked(change.lost, self._group.no_member())
            self._notify(listener.on_partitions_lost, change.lost)
        if change.revoked:
            if driver.streams is not None:
                steps.append(partial(self._release, driver.streams, change.revoked))
            if self._auto_commit is not None and self.commit_on_revoke:
                steps.append(lambda: self._commit(change.revoked))
        if change.revoked or change.begins:
            self._notify(listener.on_partitions_revoked, change.revoked)
        steps.append(lambda: self._replace(change))
        if change.assigned or change.ends:
            self._notify(listener.on_partitions_assigned, change.assigned)

    def _notify(self, method: Callable[[Partitions], Awaitable[None] | None], partitions: Assigned) -> None:
        async def step() -> None:
            try:
                limits = [each for each in (self.deadline, self._until) if each is not None]
                async with self._driver.limit(min(limits, default=None)) as limit:
                    self._limit = limit
                    with application_call(self._driver):
                        await call_listener(method, partitions)
            except Exception as error:
                failure = error
                if isinstance(error, TimeoutError) and limit.expired():
                    names = ", ".join(map(str, sorted(partitions)))
                    failure = KafkaTimeoutError(
                        f"{method.__name__} of the listener has not returned in time for {names}; it was cancelled"
                    )
                self._error = self._error or failure
            finally:
                self._limit = None

        self._steps.append(step)

    async def _release(self, streams: ReturnedRecords[Any, Any], revoked: Assigned, began: float | None = None) -> None:
        """Wait for the handlers of revoked partitions; `began`: when the wait began that a cancellation has ended."""
        began = self._driver.now() if began is None else began
        self._steps.appendleft(partial(self._release, streams, revoked, began))  # for a cancellation of this task
        await streams.release(revoked, began, self.deadline)
        self._steps.popleft()

    async def _commit(self, partitions: Assigned) -> None:
        settings = self._driver.settings
        limit_s = settings.client.default_api_timeout_s
        if settings.group is not None:
            limit_s = min(limit_s, settings.group.max_poll_interval_s)
        assert self._auto_commit is not None
        deadline = self._driver.now() + limit_s if self.deadline is None else self.deadline
        await self._auto_commit.commit(partitions, deadline)

    async def _replace(self, change: AssignmentChange) -> None:
        """Replace the assignment in the positions."""
        driver, states = self._driver, self._driver.positions.states
        taken = change.lost | change.revoked
        self._group.commits.revoked(taken, self._group.no_member())
        returned = self._returned(change, taken)
        driver.positions.end_revocation(returned)
        for each in returned:
            states[each].committed = change.start_offsets[each]
        owned = [each for each, state in states.items() if not state.revoking]
        waiting = sorted(change.revoked) if change.keep_fetched else ()
        driver.released = frozenset(waiting)
        driver.assign([*owned, *waiting])
        driver.assign([*owned, *waiting, *sorted(change.assigned)])
        driver.iteration.release([each for each in returned if not states[each].paused])
        for each in sorted(change.assigned - returned):
            self._begin_position(states[each], change.start_offsets.get(each))

    def _returned(self, change: AssignmentChange, taken: Assigned) -> Assigned:
        """Partitions that a former change has taken and that begin where they ended: their records are kept."""
        consumed = self._driver.consumed_offsets(released=True)
        kept = (each for each, state in self._driver.positions.states.items() if state.revoking and each not in taken)
        return frozenset(
            each for each in kept if each in consumed and change.start_offsets.get(each) == consumed[each].offset
        )

    def _begin_position(self, state: PartitionState, start_offset: int | None) -> None:
        positions = self._driver.positions
        if start_offset is not None and start_offset >= 0:
            state.committed = start_offset
            positions.seek(state, start_offset)
        elif start_offset is not None:
            found = replacement(positions.policy, Loss.MISSING)
            if isinstance(found, ResetPolicy):
                positions.begin_reset(state, found)
