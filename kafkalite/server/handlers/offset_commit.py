"""OffsetCommit, key 8, v2-10. Stores how far a group has read.

Version notes: up to v4 a retention time of its own; v6 leader epochs; v7 static members; v9 member epochs, and
GROUP_ID_NOT_FOUND where older ones say ILLEGAL_GENERATION (KIP-848); v10 topics by id. Members of consumer groups need
v9: UNSUPPORTED_VERSION before. A commit for partitions that do not exist stores nothing for these. The empty group id
is a group here, as of old. Source: KafkaApis.handleOffsetCommitRequest, OffsetMetadataManager.validateOffsetCommit.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

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


Refused = dict[tuple[int, int], int]  # errors by the places of topic and partition in the request
# Without the Python frame of `CommitOf(...)`: this is done for every partition of every commit.
commit_of: Callable[[tuple[str, int, int, int, str | None, bytes]], CommitOf] = partial(tuple.__new__, CommitOf)


def offset_commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
    """Commit what exists; the answer has every partition of the request, in its order."""
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

    def command(shard: GroupShard, token: Token, now: Now) -> Effects:
        if call.version < MEMBER_EPOCH_SINCE and speaks_consumer(shard, request):
            effects = Effects()
            effects.answer(token, CommitsDone(KafkaErrorCode.UNSUPPORTED_VERSION))
            return effects
        return shard.offsets.commit(wanted, token, now)

    call.broker.groups.submit(
        request.group_id,
        command,
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


def speaks_consumer(shard: GroupShard, request: OffsetCommitRequest) -> bool:
    """Whether the sender is a member that speaks the consumer protocol."""
    group = shard.consumers.groups.get(request.group_id)
    if group is None or request.member_id not in group.members:
        return False
    return not group.speaks_classic(request.member_id)


def errors(call: Call, commits: list[CommitOf], done: CommitsDone) -> Iterator[int]:
    """The error of each partition that was to be committed."""
    if not done.error:
        return iter(done.errors)
    error = done.error
    if error == KafkaErrorCode.GROUP_ID_NOT_FOUND and call.version < MEMBER_EPOCH_SINCE:
        error = KafkaErrorCode.ILLEGAL_GENERATION
    return iter([error] * len(commits))


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
