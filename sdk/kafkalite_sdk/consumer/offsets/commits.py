"""Commits the offsets of a group with OffsetCommit: in order, retried while the coordinator loads or moves.

Pure: no I/O, no clock. Invariants:
1. Each commit ends once: committed, or failed with an error that names a partition.
2. One request is open. Commits that wait behind it leave together, later offsets of a partition over earlier ones: a
   retry never replaces a newer offset.
3. A partition that the group has taken away is not committed again: a new owner may have committed a later offset.
4. STALE_MEMBER_EPOCH has two meanings: the member has a new epoch, with which the commit is repeated, or the partition
   has another owner. The commit fails if the same response accepts another partition, or if a heartbeat since has
   returned the epoch of the commit. Until then no other commit is sent (rule 2).
Sources: ConsumerCoordinator.java and CommitRequestManager.java of Apache Kafka 4.3.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import inf
from typing import NamedTuple

from kafkalite.errors import KafkaError, KafkaErrorCode, KafkaTimeoutError, error_for, with_right
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkalite_sdk.consumer.offsets.committed_offsets import COORDINATOR_LOST
from kafkalite_sdk.membership.settings import MemberIdentity
from kafkalite_sdk.values import OffsetAndMetadata

CommitDone = Callable[[KafkaError | None], object]
CommitObserver = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], object]
Topic = OffsetCommitRequest.OffsetCommitRequestTopic
VERSION_MAX = 9  # v10 names topics by id
MEMBER_ERRORS = (
    KafkaErrorCode.UNKNOWN_MEMBER_ID,
    KafkaErrorCode.ILLEGAL_GENERATION,
    KafkaErrorCode.STALE_MEMBER_EPOCH,
    KafkaErrorCode.FENCED_INSTANCE_ID,
    KafkaErrorCode.REBALANCE_IN_PROGRESS,
)
UNKNOWN_TOPIC = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNKNOWN_TOPIC_ATTEMPTS = 3
"""A new topic may be unknown to the coordinator for a short time; a deleted one stays unknown."""


class StaleEpoch(NamedTuple):
    """A response with STALE_MEMBER_EPOCH: the sender, the partitions, and when it arrived, by the loop's clock in s."""

    identity: MemberIdentity
    partitions: tuple[TopicPartition, ...]
    at: float


class Commit:
    """Offsets to commit.

    Attributes:
        offsets: those that are not committed yet.
        deadline: in seconds of the loop's clock.
        error: of a partition that cannot be committed.
        stale: what STALE_MEMBER_EPOCH said of the partitions that are left, None = it did not.
    """

    __slots__ = ("attempts", "deadline", "done", "error", "offsets", "stale")

    def __init__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float, done: CommitDone) -> None:
        self.offsets = dict(offsets)
        self.deadline = deadline
        self.done = done
        self.attempts = 0
        self.error: KafkaError | None = None
        self.stale: StaleEpoch | None = None

    def drop(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        """Give a partition up."""
        if self.offsets.pop(topic_partition, None) is not None:
            self.error = self.error or error


class CommitCall(NamedTuple):
    """A request to the coordinator.

    Attributes:
        identity: of the sender.
        offsets: as sent.
        commits: those that the request completes.
    """

    request: OffsetCommitRequest
    identity: MemberIdentity
    offsets: dict[TopicPartition, OffsetAndMetadata]
    commits: list[Commit]
    version_max: int = VERSION_MAX


class Commits:
    """The commits of one consumer.

    Arguments:
        group: the group.
        retry_backoff_s: pause after a retriable error.

    Attributes:
        coordinator_lost: the driver must find the coordinator again; it resets the attribute.
        member_error: identity and error code of a commit that the membership must know; the driver resets it.
        committed: number of successful requests.
        observer: called with the offsets of each commit and its error when it has ended; None = not called.
    """

    def __init__(self, group: str, retry_backoff_s: float) -> None:
        self.coordinator_lost = False
        self.member_error: tuple[MemberIdentity, int] | None = None
        self.committed = 0
        self.observer: CommitObserver | None = None
        self._group = group
        self._retry_backoff_s = retry_backoff_s
        self._waiting: list[Commit] = []
        self._open: CommitCall | None = None
        self._retry_at = 0.0

    @property
    def needs_coordinator(self) -> bool:
        """Whether a request waits for the coordinator."""
        return bool(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether every commit has ended."""
        return not self._waiting and self._open is None

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float, done: CommitDone) -> None:
        """Commit offsets.

        Arguments:
            offsets: by partition.
            deadline: when the commit fails with KafkaTimeoutError, in seconds of the loop's clock.
            done: called once, with None or the error.
        """
        if self.observer is not None and offsets:
            done = partial(_observed, self.observer, dict(offsets), done)
        commit = Commit(offsets, deadline, done)
        if commit.offsets:
            self._waiting.append(commit)
        else:
            done(None)

    def requests(
        self, now: float, identity: MemberIdentity, last_heartbeat: float | None = None
    ) -> Iterator[CommitCall]:
        """Yield the request that leaves now for the coordinator.

        Arguments:
            now: in seconds of the loop's clock.
            identity: of the member; generation -1 = it is not a member.
            last_heartbeat: when the member received the last response to a heartbeat, None = never.
        """
        if not self._waiting or self._open is not None or now < self._retry_at:
            return
        if self._awaits_epoch(identity, last_heartbeat) or not self._waiting:
            return
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for commit in self._waiting:
            offsets.update(commit.offsets)
        self._open = CommitCall(self._request(offsets, identity), identity, offsets, self._waiting)
        self._waiting = []
        yield self._open

    def _awaits_epoch(self, identity: MemberIdentity, last_heartbeat: float | None) -> bool:
        """Whether a commit waits for the epoch of the member. Those whose epoch was the right one fail."""
        for commit in list(self._waiting):
            stale = commit.stale
            if stale is not None and stale.identity == identity:
                if last_heartbeat is None or last_heartbeat < stale.at:
                    return True
                for each in stale.partitions:
                    commit.drop(each, self._error(KafkaErrorCode.STALE_MEMBER_EPOCH, each))
            commit.stale = None
            if not commit.offsets:
                self._waiting.remove(commit)
                self._done(commit)
        return False

    def _request(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], identity: MemberIdentity
    ) -> OffsetCommitRequest:
        topics: dict[str, Topic] = {}
        for (name, partition), each in offsets.items():
            topics.setdefault(name, Topic(name=name, partitions=[])).partitions.append(
                Topic.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    committed_metadata=each.metadata,
                )
            )
        return OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=list(topics.values()),
        )

    def answered(self, call: CommitCall, response: OffsetCommitResponse, now: float) -> None:
        """The response to a request has arrived; `now` in seconds of the loop's clock."""
        self._open = None
        codes = {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
        is_current = 0 in codes.values()  # the epoch of the request
        retried = []
        for commit in call.commits:
            commit.attempts += 1
            stale = []
            for topic_partition in list(commit.offsets):
                code = codes.get(topic_partition, int(KafkaErrorCode.UNKNOWN_SERVER_ERROR))
                if code in MEMBER_ERRORS:
                    self.member_error = call.identity, code
                if code == KafkaErrorCode.STALE_MEMBER_EPOCH and not is_current:
                    stale.append(topic_partition)
                else:
                    self._end(commit, topic_partition, code)
            if stale:
                commit.stale = StaleEpoch(call.identity, tuple(stale), now)
            if commit.offsets:
                retried.append(commit)
            else:
                self._done(commit)
        self._retry(retried, now)

    def _end(self, commit: Commit, topic_partition: TopicPartition, code: int) -> None:
        if not code:
            del commit.offsets[topic_partition]
            return
        self.coordinator_lost |= code in COORDINATOR_LOST
        error = self._error(code, topic_partition)
        unknown_topic = code == UNKNOWN_TOPIC and commit.attempts >= UNKNOWN_TOPIC_ATTEMPTS
        if not error.retriable or unknown_topic:
            commit.drop(topic_partition, error)

    def _error(self, code: int, topic_partition: TopicPartition) -> KafkaError:
        text = f"the offset of {topic_partition} is not committed in group {self._group}"
        if code == KafkaErrorCode.STALE_MEMBER_EPOCH:
            text += "; another member owns the partition now, or its offset was rewound"
        name = topic_partition.topic if code == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED else self._group
        return error_for(code, with_right(code, text, "read", name))

    def _done(self, commit: Commit) -> None:
        self.committed += commit.error is None
        commit.done(commit.error)

    def lost(self, call: CommitCall, error: KafkaError, now: float) -> None:
        """A request has no response; `now` in seconds of the loop's clock."""
        self._open = None
        self.coordinator_lost = True
        if not error.retriable:
            for commit in call.commits:
                commit.done(error)
            return
        self._retry([commit for commit in call.commits if commit.offsets], now)
        for commit in [each for each in call.commits if not each.offsets]:  # all of its partitions were taken away
            self._done(commit)

    def _retry(self, commits: list[Commit], now: float) -> None:
        if commits:
            self._waiting[:0] = commits
            self._retry_at = now + self._retry_backoff_s

    def revoked(self, partitions: Iterable[TopicPartition], error: KafkaError) -> None:
        """The group has taken partitions away: commits of them that wait fail, those that are open are not retried."""
        taken = list(partitions)
        for commit in (commit for commits in self._lists() for commit in commits):
            for topic_partition in taken:
                commit.drop(topic_partition, error)
        waiting, self._waiting = self._waiting, []
        for commit in waiting:
            if commit.offsets:
                self._waiting.append(commit)
            else:
                self._done(commit)

    def fail(self, error: KafkaError) -> None:
        """Fail the commits that wait: they cannot be sent."""
        waiting, self._waiting = self._waiting, []
        for commit in waiting:
            commit.done(error)

    def expire(self, now: float) -> None:
        """Fail the commits whose deadline has passed; `now` in seconds of the loop's clock."""
        for commits in self._lists():
            for commit in [each for each in commits if each.deadline <= now]:
                commits.remove(commit)
                for first in list(commit.offsets)[:1]:
                    text = f"the offset of {first} is not committed in time in group {self._group}"
                    commit.error = KafkaTimeoutError(text)
                self._done(commit)

    def _lists(self) -> Iterator[list[Commit]]:
        yield self._waiting
        if self._open is not None:
            yield self._open.commits

    def wake_at(self, now: float) -> float:
        """Return when `requests` or `expire` has something to do without a response; infinity = never."""
        at = min((commit.deadline for commits in self._lists() for commit in commits), default=inf)
        return min(at, self._retry_at) if self._waiting and self._open is None and self._retry_at > now else at


def _observed(
    observer: CommitObserver,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    done: CommitDone,
    error: KafkaError | None,
) -> None:
    """A commit has ended."""
    done(error)
    observer(offsets, error)
