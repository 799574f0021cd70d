"""Commits of a member: periodic ones, those of the application, and the commit of a release.

1. One commit at a time, in order, so that an older one never overwrites a newer one.
2. A failed commit is repeated, for the partitions that failed, also a periodic one; the releases of Java disagree.
3. The positions of a commit are those of its request. The commit of a release covers all commits that are not complete,
   and, if commits are automatic, the positions of the release. Then no commit begins before the next Fetch.
4. Nothing begins while the session is suspended, because another member may own the partitions; commits wait.
5. Every commit ends in time, with the error of its last attempt.
"""

import itertools
from collections.abc import Callable, Mapping

from kafkalite.clock import Outcome
from kafkalite.model import TopicPartition
from kafkalite_sdk.zk.membership.effects import CommitDone, CommitOffsets, Positions, ReadPositions
from kafkalite_sdk.zk.membership.errors import OffsetCommitError
from kafkalite_sdk.zk.membership.state import MemberState


class CommitJob:
    """One commit with its retries.

    Attributes:
        tickets: of the calls of the application that it completes.
        offsets: still to be committed, None = the positions are not read.
        give_up_at: when it ends in any case.
        token: of the effect whose answer is awaited, None = it waits for its next attempt.
        retry_at: of the next attempt.
        attempts: that have begun.
        error: of the last attempt.
        of_release: it is the commit of a release.
    """

    def __init__(self, tickets: list[int], give_up_at: float, offsets: Positions | None = None) -> None:
        self.tickets = tickets
        self.offsets = offsets
        self.give_up_at = give_up_at
        self.token: int | None = None
        self.retry_at = 0.0
        self.attempts = 0
        self.error: Exception | None = None
        self.of_release = False


class Commits:
    """The commits of one member.

    Arguments:
        state: of the member.
        tokens: gives the tokens of effects.
        release_committed: called at the end of the commit of a release.
    """

    def __init__(
        self, state: MemberState, tokens: "itertools.count[int]", release_committed: Callable[[], None]
    ) -> None:
        self._state = state
        self._tokens = tokens
        self._release_committed = release_committed
        self._jobs: list[CommitJob] = []  # the first one is in progress; that of a release is the last one
        self._late_tickets: list[int] = []  # of calls while partitions are being released
        self._periodic_at: float | None = None

    @property
    def deadline(self) -> float | None:
        """When `expire` must be called, None = it need not be."""
        times = [job.give_up_at for job in self._jobs]
        if self._periodic_at is not None:
            times.append(self._periodic_at)
        if self._jobs and self._jobs[0].token is None and not self._state.suspended:
            times.append(self._jobs[0].retry_at)
        return min(times, default=None)

    # Inputs.

    def start_periodic(self) -> None:
        """Partitions are fetched: the first automatic commit is due after one interval."""
        interval = self._state.settings.auto_commit_interval_s
        if interval is not None and self._periodic_at is None:
            self._periodic_at = self._state.now + interval

    def request(self, ticket: int) -> None:
        """The application commits."""
        if self._state.releasing is not None:
            self._late_tickets.append(ticket)
        else:
            self._add([ticket])

    def release(self, positions: Positions) -> None:
        """Commit what must be committed before the owners are deleted, then call `release_committed`."""
        state = self._state
        automatic = state.settings.auto_commit_interval_s is not None
        tickets, self._late_tickets = self._late_tickets, []
        begun = [job for job in self._jobs if job.attempts and job.token is not None]
        covered = [job for job in self._jobs if job not in begun]
        offsets: dict[TopicPartition, int] = {}
        for job in covered:
            tickets += job.tickets
            offsets |= job.offsets or {}
        if automatic or self._are_unread(covered, tickets):
            offsets |= positions
        release = CommitJob(tickets, state.now + state.settings.release_commit_timeout_s, offsets)
        release.of_release = True
        self._jobs = [*begun, release]
        self.proceed()

    def positions_read(self, token: int, positions: Positions) -> None:
        """The positions of ReadPositions."""
        for job in self._jobs:
            if job.token == token and job.offsets is None:
                active = self._state.active or {}
                job.token = None
                job.offsets = {each: position for each, position in positions.items() if each in active}
        self.proceed()

    def committed(self, token: int, outcome: Outcome) -> None:
        """The result of CommitOffsets."""
        job = self._jobs[0] if self._jobs else None
        if job is None or job.token != token:
            return
        job.token = None
        job.error = self._apply(job, outcome)
        if job.error is None or job.attempts > self._state.settings.commit_retries:
            self._finish(job, job.error)
        elif not job.of_release and self._jobs[-1].of_release:
            self._cover(job, self._jobs[-1])
        else:
            job.retry_at = self._state.now + self._state.settings.commit_backoff_s
        self.proceed()

    def expire(self) -> None:
        """Commit periodically, repeat what has failed, end what is too late."""
        now, interval = self._state.now, self._state.settings.auto_commit_interval_s
        if self._periodic_at is not None and interval is not None and now >= self._periodic_at:
            self._periodic_at = now + interval
            if not self._jobs and self._state.releasing is None and not self._state.suspended:
                self._add([])
        for job in [job for job in self._jobs if now >= job.give_up_at]:
            self._finish(job, job.error or OffsetCommitError("the offset storage did not answer in time"))
        self.proceed()

    def abandon(self, error: Exception) -> None:
        """The partitions are lost: commits fail, none is repeated, and the procedure that waits for one has ended."""
        jobs, self._jobs = self._jobs, []
        tickets, self._late_tickets = self._late_tickets, []
        tickets = [ticket for job in jobs for ticket in job.tickets] + tickets
        self._state.effects += [CommitDone(ticket, error) for ticket in tickets]

    def proceed(self) -> None:
        """Begin what is possible now."""
        while self._jobs and not self._state.suspended:
            job = self._jobs[0]
            if job.token is not None or job.offsets is None or self._state.now < job.retry_at:
                return
            if job.offsets:
                job.attempts += 1
                job.token = next(self._tokens)
                self._state.effects.append(CommitOffsets(job.token, job.offsets))
                return
            self._finish(job, None)

    # Steps.

    def _add(self, tickets: list[int]) -> None:
        state = self._state
        if not state.active:
            state.effects += [CommitDone(ticket, None) for ticket in tickets]
            return
        job = CommitJob(tickets, state.now + state.settings.commit_timeout_s)
        job.token = next(self._tokens)
        self._jobs.append(job)
        state.effects.append(ReadPositions(job.token, frozenset(state.active)))

    def _are_unread(self, covered: list[CommitJob], tickets: list[int]) -> bool:
        """Whether a covered call has no positions yet: then those of the release are its positions."""
        have_positions = {ticket for job in covered if job.offsets is not None for ticket in job.tickets}
        return not have_positions.issuperset(tickets)

    def _apply(self, job: CommitJob, outcome: Outcome) -> Exception | None:
        """The error of an attempt; its failed partitions remain to be committed."""
        if isinstance(outcome.error, Exception):
            return outcome.error
        failures: Mapping[TopicPartition, Exception] = outcome.result() or {}
        if not failures or job.offsets is None:
            return None
        job.offsets = {each: offset for each, offset in job.offsets.items() if each in failures}
        first = min(failures)
        return OffsetCommitError(f"{first.topic} {first.partition} and {len(failures) - 1} more: {failures[first]}")

    def _cover(self, job: CommitJob, release: CommitJob) -> None:
        """The commit of the release includes what is left of this one."""
        release.tickets += job.tickets
        release.offsets = {**(job.offsets or {}), **(release.offsets or {})}
        self._jobs.remove(job)

    def _finish(self, job: CommitJob, error: Exception | None) -> None:
        state = self._state
        self._jobs.remove(job)
        state.effects += [CommitDone(ticket, error) for ticket in job.tickets]
        if error is not None and not job.tickets:
            state.report(error)
        if job.of_release:
            self._release_committed()
