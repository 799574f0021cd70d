"""Fetches partitions from one leader: a session, one request at a time, whose response is applied before the next one.

1. Callbacks only, without a task per request. A request leaves in the loop iteration after the response before is
   applied, so that all partitions that became ready in an iteration are in one request.
2. Memory is bounded by one response (`replica.fetch.response.max.bytes`, or one batch if that is larger).
3. A partition that cannot be fetched at present, or waits for the replication quota, leaves the session; the others go
   on. In a session of partitions that flush first, no request leaves while a flush runs.
4. The records of a response are used for the partitions that were fetched in the same state and leader epoch when the
   request left.

Source: AbstractFetcherThread.scala, RemoteLeaderEndPoint.scala of Apache Kafka 3.9.
"""

import logging
from enum import Enum
from functools import partial

from kafkalite.clock import Outcome, Timer
from kafkalite.cluster.fetchers.fetch_reports import error_text
from kafkalite.cluster.fetchers.fetch_request import build_request
from kafkalite.cluster.fetchers.fetched_replica import FetchedReplica, PartitionKey, name_of
from kafkalite.cluster.fetchers.fetcher_parts import FetcherParts
from kafkalite.cluster.fetchers.leader_link import LeaderLink, pause_s
from kafkalite.cluster.fetchers.leader_offsets import LeaderRange, Lookup, look_up
from kafkalite.cluster.fetchers.response_application import Divergence, Restart, apply_response
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite.slicing import Slice
from kafkalite.state.follower.fetch_session import FetchSession
from kafkalite.state.follower.partition_fetch import FetchEvent, FetchState, event_of
from kafkalite.state.follower.truncation import EpochEnd, TruncateTo, offset_of_divergence, range_change

VERSION_MAX = 17  # of Apache Kafka 3.9
NO_FLUSH = 2**63 - 1  # the default of flush.messages
SESSION_ERRORS = frozenset({KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND, KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH})


class Phase(Enum):
    """What a fetcher does at present."""

    IDLE = "the next request may leave"
    WAITING = "for the response"
    APPLYING = "the response"


class LeaderFetcher:
    """A session with one leader.

    Arguments:
        parts: shared by all fetchers.
        leader: broker id.

    Attributes:
        replicas: that are fetched, by key.
    """

    def __init__(self, parts: FetcherParts, leader: int) -> None:
        self.leader = leader
        self.replicas: dict[PartitionKey, FetchedReplica] = {}
        self._parts = parts
        self._host = parts.host
        self._link = LeaderLink(parts.host, leader)
        self._session: FetchSession[PartitionKey] = FetchSession(name_of)
        self._number = 0  # of the last request
        self._phase = Phase.IDLE
        self._slice: Slice | None = None  # of the response that is being applied
        self._flushing: dict[FetchedReplica, None] = {}
        self._out_of_range: list[FetchedReplica] = []  # in the response that is being applied
        self._timer: Timer | None = None  # of the next request

    # The partitions.

    def add(self, replica: FetchedReplica) -> None:
        """Fetch a partition, once earlier changes of its log have ended."""
        self.replicas[replica.key] = replica
        self._parts.fetcher_of[replica] = self
        self._begin(replica)

    def begin_epoch(self, replica: FetchedReplica) -> None:
        """Fetch a partition in another leader epoch, or after it has failed."""
        replica.leader_epoch = replica.partition.leader_epoch
        state = replica.fetch.apply(FetchEvent.NEW_EPOCH)
        if state is FetchState.FETCHING:
            self._begin(replica)

    def remove(self, replica: FetchedReplica) -> None:
        """Fetch a partition no longer."""
        replica.end_steps()
        del self.replicas[replica.key]
        del self._parts.fetcher_of[replica]
        self._session.remove(replica.key)
        if self._flushing.pop(replica, self) is None:
            self._send_soon()

    def _begin(self, replica: FetchedReplica) -> None:
        """Fetch a replica in FETCHING after the changes of its log that an earlier fetcher has requested."""
        self._session.remove(replica.key)
        replica.fetch.apply(FetchEvent.DIVERGED)
        self._parts.changes.await_earlier(replica)

    def _continue(self, replica: FetchedReplica) -> None:
        """A replica is in FETCHING: flush it first, if it must be flushed."""
        if replica.must_flush:
            self._flush(replica)
            return
        pause = self._parts.throttled.pause_s()
        if pause and self._parts.throttled.must_wait(replica):
            self._throttle(replica, pause)
            return
        replica.since = self._number + 1
        self._session.set(replica.key, replica.position())
        self._send_soon()

    def _flush(self, replica: FetchedReplica) -> None:
        replica.fetch.apply(FetchEvent.FLUSH_REQUIRED)
        self._session.remove(replica.key)
        self._flushing[replica] = None
        self._parts.changes.flush(replica)
        self._parts.changes.begin_flushes()

    def log_changed(self, replica: FetchedReplica, event: FetchEvent) -> None:
        """A truncation, a restart or a flush of the log has ended."""
        self._flushing.pop(replica, None)
        if event is FetchEvent.REFUSED:
            self.failed(
                replica, event, KafkaErrorCode.UNKNOWN_SERVER_ERROR, "the log cannot be changed as the leader's"
            )
        elif replica.fetch.apply(event) is FetchState.FETCHING:
            self._continue(replica)
        else:
            self._send_soon()

    # Requests.

    def _send_soon(self, delay_s: float = 0.0) -> None:
        """Send the next request in the next loop iteration, or after a pause; does nothing while one is scheduled."""
        if self._timer is None and self._phase is Phase.IDLE:
            self._timer = self._host.clock.call_at(self._host.clock.monotonic() + delay_s, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._flushing or not self._session.positions:
            return
        peer = self._link.peer()
        if peer is None:  # `brokers_changed` continues
            return
        wait_ms = self._link.wait.begin(self._host.config.replica_fetch_wait_max_ms, self._host.clock.monotonic())
        request = build_request(self._host, self._session.request(), wait_ms)
        self._number += 1
        self._phase = Phase.WAITING
        self._parts.requests.add()
        peer.call(request, partial(self._received, self._number), partial(self._lost, self._number), VERSION_MAX)

    def _lost(self, number: int, reason: str) -> None:
        """The connection has failed, or the leader did not respond in time."""
        if number != self._number or self._phase is not Phase.WAITING:
            return
        self._phase = Phase.IDLE
        self._session.lose()
        self._link.close()
        self._abandon_lookups()
        self._pause(f"no response: {reason}")

    def _pause(self, reason: str) -> None:
        """Repeat the fetch after a pause."""
        self._link.failures += 1
        delay_s = pause_s(self._host, self._link.failures)
        self._parts.reports.report(f"leader {self.leader}", f"{reason}; the fetch is repeated")
        self._send_soon(delay_s)

    def _received(self, number: int, response: FetchResponse) -> None:
        if number != self._number or self._phase is not Phase.WAITING:
            return
        self._phase = Phase.IDLE
        high_watermarks = {
            (bytes(topic.topic_id), each.partition_index): each.high_watermark
            for topic in response.responses
            for each in topic.partitions
        }
        self._link.wait.end(self._host.clock.monotonic(), is_empty=not high_watermarks)
        reason = self._session.apply_response(response.error_code, response.session_id, high_watermarks)
        if not reason:
            self._phase = Phase.APPLYING
            steps = apply_response(response, number, self.replicas.get, self, self._parts.appended)
            applied = self._host.slicer.run(steps, self._applied)
            self._slice = None if applied.ended else applied
        elif response.error_code in SESSION_ERRORS and not self._link.failures:
            self._link.failures += 1  # the next such error is followed by a pause
            self._send_soon()
        else:
            self._pause(f"the response cannot be used: {reason}")

    def _applied(self, outcome: Outcome) -> None:
        self._slice, self._phase = None, Phase.IDLE
        if outcome.error is not None:
            self._host.report(f"fetcher of leader {self.leader}", outcome.error)
            self._session.lose()
            self._pause("the response cannot be applied")
            return
        self._link.failures = 0
        self._throttle_fetched()
        self._look_up_offsets()
        self._send_soon()

    # Results of a response.

    def _is_fetched(self, replica: FetchedReplica) -> bool:
        """Whether a replica is fetched still: an error of its log may have ended that inside the append."""
        return self.replicas.get(replica.key) is replica

    def applied(self, replica: FetchedReplica) -> None:
        """The records and offsets of a response are used."""
        if not self._is_fetched(replica):
            return
        replica.fetch.apply(FetchEvent.RECORDS)
        if replica.must_flush:
            self._flush(replica)
        else:
            self._session.set(replica.key, replica.position())
        if replica.flush_first != is_flushed_first(replica):
            self._parts.rerouted(replica)

    def diverged(self, replica: FetchedReplica, divergence: Divergence) -> None:
        """The log must be truncated."""
        log, leader = replica.log, EpochEnd(*divergence)
        own = EpochEnd(*log.epoch_end_offset(leader.epoch))
        target = offset_of_divergence(leader, own, log.log_end_offset)
        reason = f"epoch {leader.epoch} ends at {leader.end_offset} on leader {self.leader}"
        self._truncate(replica, target.offset, reason)

    def _truncate(self, replica: FetchedReplica, offset: int, reason: str) -> None:
        if not self._is_fetched(replica):
            return
        replica.fetch.apply(FetchEvent.DIVERGED)
        self._session.remove(replica.key)
        self._parts.changes.truncate(replica, offset, reason)

    def must_restart(self, replica: FetchedReplica, restart: Restart, reason: str) -> None:
        """The log of `replica` must restart as `restart` says, for a `reason` that is logged."""
        if not self._is_fetched(replica):
            return
        replica.fetch.apply(FetchEvent.RESTART_REQUIRED)
        self._session.remove(replica.key)
        self._parts.changes.restart(replica, restart.offset, restart.log_start_offset, reason)

    def failed(self, replica: FetchedReplica, event: FetchEvent, error: int, reason: str) -> None:
        """The part of a response for `replica` has an error, or cannot be used.

        Arguments:
            replica: that was fetched.
            event: what the error means for its state.
            error: a Kafka error code.
            reason: for the log line.
        """
        if not self._is_fetched(replica):
            return
        state = replica.fetch.apply(event)
        self._session.remove(replica.key)
        if state is FetchState.LOOKING_UP:
            self._out_of_range.append(replica)
        text = f"{reason}: {error_text(error)}"
        if state is FetchState.DELAYED:
            if replica.fetch.is_reported(error):
                self._report(replica, error, f"{text}; it is fetched again after a pause")
            self._delay(replica, pause_s(self._host, replica.fetch.failures))
        elif state is FetchState.FAILED:
            # The leader has received the state of the next leader epoch first: so it is in many elections.
            level = logging.INFO if error == KafkaErrorCode.FENCED_LEADER_EPOCH else logging.WARNING
            self._report(replica, error, f"{text}; it is not fetched before the next leader epoch", level)

    def _report(self, replica: FetchedReplica, error: int, text: str, level: int = logging.WARNING) -> None:
        self._parts.reports.report_error(replica.name, self.leader, error, text, level)

    def broken(self, replica: FetchedReplica, error: Exception) -> None:
        """An unexpected exception has ended the application."""
        self._host.report(f"fetch of {replica.name} from leader {self.leader}", error)
        if replica.fetch.state is FetchState.FETCHING:
            self.failed(replica, FetchEvent.REFUSED, KafkaErrorCode.UNKNOWN_SERVER_ERROR, "an exception")

    # Pauses and lookups.

    def _throttle_fetched(self) -> None:
        """Remove the replicas that must wait for the replication quota from the next request."""
        pause = self._parts.throttled.pause_s()
        for replica in self.replicas.values() if pause else ():
            if replica.fetch.state is FetchState.FETCHING and self._parts.throttled.must_wait(replica):
                self._throttle(replica, pause)

    def _throttle(self, replica: FetchedReplica, delay_s: float) -> None:
        replica.fetch.apply(FetchEvent.THROTTLED)
        self._session.remove(replica.key)
        self._delay(replica, delay_s)

    def _delay(self, replica: FetchedReplica, delay_s: float) -> None:
        step = replica.begin_step()
        at = self._host.clock.monotonic() + delay_s
        replica.timer = self._host.clock.call_at(at, self._pause_ended, replica, step)

    def _pause_ended(self, replica: FetchedReplica, step: object) -> None:
        if replica.step is step:
            replica.end_steps()
            replica.fetch.apply(FetchEvent.PAUSE_ENDED)
            self._continue(replica)

    def _look_up_offsets(self) -> None:
        """Ask for the offsets of the leader, where the response had OFFSET_OUT_OF_RANGE; before the next fetch."""
        if not self._out_of_range:
            return
        replicas, self._out_of_range = self._out_of_range, []
        waiting = [each for each in replicas if each.fetch.state is FetchState.LOOKING_UP]
        lookups = [Lookup(each, each.begin_step()) for each in waiting if self._is_fetched(each)]
        if not lookups:
            return
        peer = self._link.peer()
        if peer is not None:
            look_up(peer, self._host.broker_id, lookups, self._found)
        else:
            self._abandon_lookups()

    def _abandon_lookups(self) -> None:
        """The leader has no address, or another one."""
        for replica in self.replicas.values():
            if replica.fetch.state is FetchState.LOOKING_UP and replica.step is not None:
                replica.end_steps()
                self.failed(replica, FetchEvent.REFUSED, KafkaErrorCode.LEADER_NOT_AVAILABLE, "the leader has moved")

    def _found(self, replica: FetchedReplica, found: LeaderRange) -> None:
        log = replica.log
        if found.error:
            event = event_of(found.error)
            event = event if event is FetchEvent.FENCED else FetchEvent.REFUSED
            self.failed(replica, event, found.error, f"leader {self.leader} does not return its offsets")
            return
        change = range_change(found.offsets, log.log_end_offset)
        offsets = f"leader {self.leader} has the offsets {found.offsets.start} to {found.offsets.end}"
        if change is None:
            out_of_range = KafkaErrorCode.OFFSET_OUT_OF_RANGE
            self.failed(replica, FetchEvent.REFUSED, out_of_range, f"{offsets}, {log.log_end_offset} is among them")
        elif isinstance(change, TruncateTo):
            self._truncate(replica, change.offset, offsets)
        else:
            self.must_restart(replica, Restart(change.offset, change.offset), offsets)

    # Changes from outside.

    def leader_moved(self) -> None:
        """The image may have another address of the leader, or none."""
        if self._link.is_outdated:
            self._disconnect()
        self._send_soon()

    def _disconnect(self) -> None:
        """End the connection; a response that has arrived is applied all the same."""
        self._link.close()
        self._link.failures = 0
        self._cancel_timer()
        self._abandon_lookups()
        if self._phase is Phase.WAITING:
            self._phase = Phase.IDLE
            self._session.lose()

    def close(self) -> None:
        """End the connection, and apply no more of a response; it has no partitions any more."""
        self._link.close()
        self._cancel_timer()
        if self._slice is not None:
            self._slice.cancel()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def is_flushed_first(replica: FetchedReplica) -> bool:
    """Whether its topic may require a flush before the acknowledgement (flush.messages)."""
    return replica.partition.config.flush_messages < NO_FLUSH
