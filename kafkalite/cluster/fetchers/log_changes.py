"""Truncates, restarts and flushes the logs of followers in jobs.

1. The caller learns the end of a change by an event, unless the replica has begun another step meanwhile, or is fetched
   no longer: then the end only updates the log.
2. A truncation that changes nothing is REFUSED: the leader names a divergence that this log does not have, and a fetch
   at once would have the same response.
"""

import logging
from collections.abc import Callable
from functools import partial

from kafkalite.clock import Outcome
from kafkalite.cluster.fetchers.fetched_replica import FetchedReplica
from kafkalite.cluster.partition.follower import bound_high_watermark
from kafkalite.state.follower.partition_fetch import FetchEvent
from kafkalite.storage.manager import LogManager

LOGGER = logging.getLogger("kafkalite.cluster.fetchers")

Ended = Callable[[FetchedReplica, FetchEvent], object]


class LogChanges:
    """The changes of logs that fetchers request.

    Arguments:
        logs: executes them.
        ended: called with a replica and the event at the end of its change; perhaps before the request returns.
    """

    def __init__(self, logs: LogManager, ended: Ended) -> None:
        self._logs = logs
        self._ended = ended

    def truncate(self, replica: FetchedReplica, offset: int, reason: str) -> None:
        """Truncate the log of `replica` to `offset`, and lower the high watermark before, which readers use meanwhile.

        `reason` is logged.
        """
        log, partition, step = replica.log, replica.partition, replica.begin_step()
        level = logging.WARNING if offset < partition.high_watermark else logging.INFO
        LOGGER.log(
            level,
            "%s: truncated from %d to %d, high watermark %d: %s",
            replica.name,
            log.log_end_offset,
            offset,
            partition.high_watermark,
            reason,
        )
        partition.high_watermark = min(partition.high_watermark, offset)
        before = log.log_end_offset, log.epochs.latest
        self._logs.truncate({log: offset}, partial(self._changed, replica, step, before))

    def restart(self, replica: FetchedReplica, offset: int, log_start_offset: int, reason: str) -> None:
        """Restart the log of `replica` empty at `offset`, with the log start of the leader (`log_start_offset`).

        `reason` is logged.
        """
        log, step = replica.log, replica.begin_step()
        LOGGER.warning("%s: restarted at %d, its end was %d: %s", replica.name, offset, log.log_end_offset, reason)
        ended = partial(self._changed, replica, step, None)
        self._logs.restart_at(log, offset, ended, log_start_offset=log_start_offset)

    def _changed(self, replica: FetchedReplica, step: object, before: tuple[int, int] | None, outcome: Outcome) -> None:
        log = replica.log
        if replica.partition.log is log:
            bound_high_watermark(replica.partition, log)
        if replica.step is not step:
            return
        if log.failed:
            self._end(replica, FetchEvent.LOG_FAILED)
        elif outcome.error is not None or before == (log.log_end_offset, log.epochs.latest):
            self._end(replica, FetchEvent.REFUSED)
        else:
            self._end(replica, FetchEvent.JOB_ENDED)

    def await_earlier(self, replica: FetchedReplica) -> None:
        """Wait for the changes that were requested before the replica was fetched."""
        step = replica.begin_step()
        self._logs.when_truncated(replica.log, partial(self._waited, replica, step))

    def _waited(self, replica: FetchedReplica, step: object) -> None:
        if replica.step is step:
            self._end(replica, FetchEvent.LOG_FAILED if replica.log.failed else FetchEvent.JOB_ENDED)

    def flush(self, replica: FetchedReplica) -> None:
        """Request a flush of the log; `begin_flushes` starts it."""
        step = replica.begin_step()
        self._logs.flusher.request_flush(replica.log, partial(self._flushed, replica, step))

    def begin_flushes(self) -> None:
        """Start the flushes that were requested, together."""
        self._logs.flusher.begin_soon()

    def _flushed(self, replica: FetchedReplica, step: object, error: int) -> None:
        if replica.step is not step:
            return
        if replica.log.failed:
            self._end(replica, FetchEvent.LOG_FAILED)
        else:
            self._end(replica, FetchEvent.REFUSED if error else FetchEvent.FLUSHED)

    def _end(self, replica: FetchedReplica, event: FetchEvent) -> None:
        replica.end_steps()
        self._ended(replica, event)
