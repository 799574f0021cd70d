"""OffsetCommit, key 8, v2-10. Stores how far a group has read.

Version notes: up to v4 a retention time of its own; v6 leader epochs; v7 static members; v9 member epochs, and
GROUP_ID_NOT_FOUND where older ones say ILLEGAL_GENERATION (KIP-848); v10 topics by id. Members of consumer groups need
v9: UNSUPPORTED_VERSION before. A commit for partitions that do not exist stores nothing for these. The empty group id
is a group here, as of old. Source: KafkaApis.handleOffsetCommitRequest, OffsetMetadataManager.validateOffsetCommit.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

from kafkalite._speedups.codec import decode
from kafkalite.cluster.image import TopicImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkalite.protocol.packed_commits import PackedCommit
from kafkalite.protocol.schema import ZERO_UUID
from kafkalite.server.call import Call
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.group_shard import GroupShard
from kafkalite.state.offsets import Commit, CommitOf, CommitsDone

MEMBER_EPOCH_SINCE = 9
TOPIC_ID_SINCE = 10

Topic = OffsetCommitResponse.OffsetCommitResponseTopic
Partition = Topic.OffsetCommitResponsePartition


Refused = dict[tuple[int, int], int]  # errors by the places of topic and partition in the request
# Without the Python frame of `CommitOf(...)`: this is done for every partition of a commit, the other for every commit.
commit_of: Callable[[tuple[str, int, int, int, str | None, bytes]], CommitOf] = partial(tuple.__new__, CommitOf)
packed_commit: Callable[[tuple[str, tuple[()], str, int, str | None, int, int, PackedCommit]], Commit] = partial(
    tuple.__new__, Commit
)


def offset_commit(call: Call, request: OffsetCommitRequest | PackedCommit) -> OffsetCommitResponse | None:
    """Commit what exists; the answer has every partition of the request, in its order."""
    if not isinstance(request, PackedCommit):
        return commit_each(call, request)
    if not located(call, request):  # the frame is there until the pass ends
        return commit_each(call, decode(OffsetCommitRequest, call.version, call.header.body, exact=False))
    committing = Committing(call, request)
    call.broker.groups.submit(request.group_id, committing.command, committing)
    return None


def located(call: Call, request: PackedCommit) -> bool:
    """Whether all partitions of the request exist; it then knows of which topics they are."""
    image = call.broker.image
    topics: Mapping[Any, TopicImage] = image.topics_by_id if call.version >= TOPIC_ID_SINCE else image.topics
    for at, named in enumerate(request.topics):
        found = topics.get(named)
        if found is None or not request.locate(at, found.name, found.topic_id, len(found.partitions)):
            return False
    return True


class Committing:
    """A commit in one piece: the command, and who waits for it (`coordinators.runtime.Waiting`)."""

    __slots__ = ("_call", "_request")

    def __init__(self, call: Call, request: PackedCommit) -> None:
        self._call = call
        self._request = request

    def command(self, shard: GroupShard, token: Token, now: Now) -> Effects:
        """Commit."""
        of = self._request
        wanted = packed_commit((of.group_id, (), of.member_id, of.generation, of.group_instance_id, -1, -1, of))
        return commit(self._call.version, shard, wanted, token, now)

    def answer(self, result: Any) -> None:
        """The machine's `CommitsDone`, committed."""
        call = self._call
        try:
            errors = error_of(call, result) or result.errors
            call.reply.send(self._request.answer(call.header.correlation_id, errors))
        except Exception as error:
            call.fail(error)

    def fail(self, error: int) -> None:
        """There is no answer."""
        call = self._call
        try:
            call.reply.send(self._request.answer(call.header.correlation_id, error))
        except Exception as raised:
            call.fail(raised)


def commit(version: int, shard: GroupShard, wanted: Commit, token: Token, now: Now) -> Effects:
    """The command itself, of either way."""
    if version < MEMBER_EPOCH_SINCE and speaks_consumer(shard, wanted):
        effects = Effects()
        effects.answer(token, CommitsDone(KafkaErrorCode.UNSUPPORTED_VERSION))
        return effects
    return shard.offsets.commit(wanted, token, now)


def commit_each(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
    """Commit what exists of a request that is not in one piece."""
    commits, refused = wanted_of(call, request)
    if refused and not commits:
        return answer(request, refused, iter(()))
    wanted = Commit(
        group=request.group_id,
        partitions=commits,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        group_instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
    )
    call.broker.groups.submit(
        request.group_id,
        lambda shard, token, now: commit(call.version, shard, wanted, token, now),
        call.awaiting(
            lambda done: answer(request, refused, errors(call, commits, done)),
            lambda error: answer(request, refused, iter([error] * len(commits))),
        ),
    )
    return None


def wanted_of(call: Call, request: OffsetCommitRequest) -> tuple[list[CommitOf], Refused]:
    """What is to be committed, and why the rest is not."""
    commits: list[CommitOf] = []
    refused: Refused = {}
    for at, topic in enumerate(request.topics):
        found, unknown = topic_of(call, topic)
        if found is None:
            refused.update(((at, place), unknown) for place in range(len(topic.partitions)))
            continue
        name, topic_id, count = found.name, found.topic_id, len(found.partitions)
        for place, part in enumerate(topic.partitions):
            index = part.partition_index
            if 0 <= index < count:
                epoch = part.committed_leader_epoch
                commits.append(
                    commit_of((name, index, part.committed_offset, epoch, part.committed_metadata, topic_id))
                )
            else:
                refused[at, place] = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return commits, refused


def topic_of(call: Call, topic: OffsetCommitRequest.OffsetCommitRequestTopic) -> tuple[TopicImage | None, int]:
    """A topic of the request, and the error where there is none."""
    if call.version >= TOPIC_ID_SINCE:
        return call.broker.image.topics_by_id.get(topic.topic_id), KafkaErrorCode.UNKNOWN_TOPIC_ID
    return call.broker.image.topics.get(topic.name), KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def speaks_consumer(shard: GroupShard, request: Commit) -> bool:
    """Whether the sender is a member that speaks the consumer protocol."""
    group = shard.consumers.groups.get(request.group)
    if group is None or request.member_id not in group.members:
        return False
    return not group.speaks_classic(request.member_id)


def errors(call: Call, commits: list[CommitOf], done: CommitsDone) -> Iterator[int]:
    """The error of each partition that was to be committed."""
    error = error_of(call, done)
    return iter([error] * len(commits) if error else done.errors)


def error_of(call: Call, done: CommitsDone) -> int:
    """The error of all partitions, in the words of the request's version."""
    if done.error and done.error == KafkaErrorCode.GROUP_ID_NOT_FOUND and call.version < MEMBER_EPOCH_SINCE:
        return KafkaErrorCode.ILLEGAL_GENERATION
    return done.error


def answer(request: OffsetCommitRequest, refused: Refused, outcomes: Iterator[int]) -> OffsetCommitResponse:
    """Every partition of the request, with `outcomes` for those that were to be committed."""
    topics = []
    for at, topic in enumerate(request.topics):
        partitions = [
            outcome(part.partition_index, refused.get((at, place)) or next(outcomes) if refused else next(outcomes))
            for place, part in enumerate(topic.partitions)
        ]
        topics.append(Topic(name=topic.name, topic_id=topic.topic_id or ZERO_UUID, partitions=partitions))
    return OffsetCommitResponse(topics=topics)


@lru_cache(maxsize=1_024)
def outcome(partition_index: int, error: int) -> Partition:
    """One partition of an answer; shared between answers, which are only written."""
    return Partition(partition_index=partition_index, error_code=error)
