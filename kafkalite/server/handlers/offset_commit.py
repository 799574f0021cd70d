"""OffsetCommit, key 8, v2-10. Stores how far a group has read.

Version notes: up to v4 a retention time of its own; v6 leader epochs; v7 static members; v9 member epochs, and
GROUP_ID_NOT_FOUND where older ones say ILLEGAL_GENERATION (KIP-848); v10 topics by id. Members of consumer groups need
v9: UNSUPPORTED_VERSION before. A commit for partitions that do not exist stores nothing for these. The empty group id
is a group here, as of old. Source: KafkaApis.handleOffsetCommitRequest, OffsetMetadataManager.validateOffsetCommit.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kafkalite.cluster.image import TopicImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkalite.protocol.schema import ZERO_UUID
from kafkalite.server.call import Call
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.group_shard import GroupShard
from kafkalite.state.offsets import Commit, CommitOf, CommitsDone

MEMBER_EPOCH_SINCE = 9
TOPIC_ID_SINCE = 10

Topic = OffsetCommitResponse.OffsetCommitResponseTopic
Partition = Topic.OffsetCommitResponsePartition


class Asked(NamedTuple):
    """One partition of the request: what to commit, or why not."""

    topic: OffsetCommitRequest.OffsetCommitRequestTopic
    partition_index: int
    commit: CommitOf | None
    error: int = 0


def offset_commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
    """Commit what exists; the answer has every partition of the request, in its order."""
    asked = [part for topic in request.topics for part in parts(call, topic)]
    commits = [part.commit for part in asked if part.commit is not None]
    if asked and not commits:
        return answer(asked, iter(()))
    wanted = Commit(
        group=request.group_id,
        partitions=commits,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        group_instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
    )

    def command(shard: GroupShard, token: Token, now: Now) -> Effects:
        if call.version < MEMBER_EPOCH_SINCE and speaks_consumer(shard, request):
            effects = Effects()
            effects.answer(token, CommitsDone(KafkaErrorCode.UNSUPPORTED_VERSION))
            return effects
        return shard.offsets.commit(wanted, token, now)

    call.broker.groups.ask(
        request.group_id,
        command,
        call.answering(lambda done: answer(asked, errors(call, commits, done))),
        call.answering(lambda error: answer(asked, iter([error] * len(commits)))),
    )
    return None


def parts(call: Call, topic: OffsetCommitRequest.OffsetCommitRequestTopic) -> Iterator[Asked]:
    """The partitions of one topic of the request."""
    found: TopicImage | None
    if call.version >= TOPIC_ID_SINCE:
        found, unknown = call.broker.image.topics_by_id.get(topic.topic_id), KafkaErrorCode.UNKNOWN_TOPIC_ID
    else:
        found, unknown = call.broker.image.topics.get(topic.name), KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for part in topic.partitions:
        index = part.partition_index
        if found is None:
            yield Asked(topic, index, None, unknown)
        elif not 0 <= index < len(found.partitions):
            yield Asked(topic, index, None, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            commit = CommitOf(
                found.name,
                index,
                part.committed_offset,
                part.committed_leader_epoch,
                part.committed_metadata,
                found.topic_id,
            )
            yield Asked(topic, index, commit)


def speaks_consumer(shard: GroupShard, request: OffsetCommitRequest) -> bool:
    """Whether the sender is a member that speaks the consumer protocol."""
    group = shard.consumers.groups.get(request.group_id)
    return group is not None and request.member_id in group.members


def errors(call: Call, commits: list[CommitOf], done: CommitsDone) -> Iterator[int]:
    """The error of each partition that was to be committed."""
    if not done.error:
        return iter(done.errors)
    error = done.error
    if error == KafkaErrorCode.GROUP_ID_NOT_FOUND and call.version < MEMBER_EPOCH_SINCE:
        error = KafkaErrorCode.ILLEGAL_GENERATION
    return iter([error] * len(commits))


def answer(asked: list[Asked], outcomes: Iterator[int]) -> OffsetCommitResponse:
    """Every partition of the request, with `outcomes` for those that were to be committed."""
    topics: list[Topic] = []
    last = None
    for part in asked:
        if part.topic is not last:
            last = part.topic
            topics.append(Topic(name=last.name, topic_id=last.topic_id or ZERO_UUID, partitions=[]))
        error = part.error if part.commit is None else next(outcomes)
        topics[-1].partitions.append(Partition(partition_index=part.partition_index, error_code=error))
    return OffsetCommitResponse(topics=topics)
