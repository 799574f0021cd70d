"""OffsetCommit, key 8, v2-10: stores the offsets up to which a group has read.

Version notes: up to v4 a retention time per request; v6 leader epochs; v7 static members; v9 member epochs, and
GROUP_ID_NOT_FOUND where older versions return ILLEGAL_GENERATION (KIP-848); v10 topics by id. Members of consumer
groups need v9; older versions fail with UNSUPPORTED_VERSION. A commit stores nothing for partitions that do not exist.
The empty group id is a valid group, as in older Kafka. Deviation: a commit of thousands of partitions is several
batches; other requests of the group may be served between them. Sources: KafkaApis.handleOffsetCommitRequest,
OffsetMetadataManager.validateOffsetCommit.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import lru_cache, partial
from itertools import chain
from typing import Any

from kafkalite._speedups.codec import decode
from kafkalite._speedups.groups.offset_commit_request import PackedCommit, read_packed
from kafkalite._speedups.groups.offset_commit_response import encode_response
from kafkalite._speedups.groups.partition_offsets import PartitionOffsets
from kafkalite.cluster.metadata.image import TopicImage
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkalite.protocol.schema import ZERO_UUID
from kafkalite.server.requests.call import OBJECTS_MAX, GroupCall
from kafkalite.server.requests.group_responses import ended
from kafkalite.server.requests.response_arrays import ResponseArray
from kafkalite.state.effects import Effects, Now, Token
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.groups.offsets.manager import Commit, CommitResult, PartitionCommit

MEMBER_EPOCH_SINCE = 9
TOPIC_ID_SINCE = 10
COMMITS_AT_ONCE = 100  # of a request with more than OBJECTS_MAX partitions

Topic = OffsetCommitResponse.OffsetCommitResponseTopic
Partition = Topic.OffsetCommitResponsePartition


Refused = dict[tuple[int, int], int]  # errors by the indexes of topic and partition in the request
# Without the Python frame of the constructors: `commit_of` runs for every partition, `packed_commit` for every request.
commit_of: Callable[[tuple[str, int, int, int, str | None, bytes]], PartitionCommit] = partial(
    tuple.__new__, PartitionCommit
)
packed_commit: Callable[[tuple[str, tuple[()], str, int, str | None, int, int, PartitionOffsets, bool]], Commit] = (
    partial(tuple.__new__, Commit)
)


def decode_request(cls: type[Any], version: int, body: memoryview, exact: bool, elements_max: int) -> Any:
    """Decode a common request as a PackedCommit, in C, which ignores bytes behind the message; all others by the codec.

    Arguments:
        cls: OffsetCommitRequest.
        version: of the request.
        body: the request without its header.
        exact: whether the codec rejects bytes behind the message.
        elements_max: limit of topics and partitions together.

    Raises: DecodeError.
    """
    packed = read_packed(version, body, elements_max)
    return decode(cls, version, body, exact, elements_max) if packed is None else packed


def offset_commit(call: GroupCall, request: OffsetCommitRequest | PackedCommit) -> None:
    """Commit the existing partitions; the response has every partition of the request in its order."""
    if not isinstance(request, PackedCommit):
        commit_each(call, request)
    elif not locate_partitions(call, request):  # the frame is there until the iteration ends
        commit_each(call, decode(OffsetCommitRequest, call.version, call.header.body, exact=False))
    else:
        whole = PendingCommit(call, request)
        call.context.groups.submit(request.group_id, whole.command, whole)


def locate_partitions(call: GroupCall, request: PackedCommit) -> bool:
    """Give the request the topics of its partitions. Returns whether all of them exist."""
    image = call.context.image
    topics: Mapping[Any, TopicImage] = image.topics_by_id if call.version >= TOPIC_ID_SINCE else image.topics
    for at, named in enumerate(request.topics):
        found = topics.get(named)
        if found is None or not request.offsets.locate(at, found.name, found.topic_id, len(found.partitions)):
            return False
    return True


class PendingCommit:
    """A packed commit: the command and its completion in one object, as every commit makes one."""

    __slots__ = ("_call", "_request")

    def __init__(self, call: GroupCall, request: PackedCommit) -> None:
        self._call = call
        self._request = request

    def command(self, machine: GroupMachine, token: Token, now: Now) -> Effects:
        """The command for the shard."""
        of, member_epochs = self._request, self._call.version >= MEMBER_EPOCH_SINCE
        fields = of.group_id, (), of.member_id, of.generation, of.group_instance_id, -1, -1, of.offsets, member_epochs
        return machine.offsets.commit(packed_commit(fields), token, now)

    def answer(self, result: Any) -> None:
        """Send the response; the offsets are committed."""
        call = self._call
        try:
            errors = error_of(call, result) or result.errors
            self._send(errors)
        except Exception as error:
            call.fail(error)

    def fail(self, error: int) -> None:
        """Send the response for an error of the coordinator."""
        try:
            self._send(error)
        except Exception as raised:
            self._call.fail(raised)

    def _send(self, errors: Any) -> None:
        call = self._call
        if call.charge is None:
            call.reply.send(encode_response(self._request, call.header.correlation_id, errors))
        else:
            call.answer_packed(partial(encode_response, self._request, call.header.correlation_id, errors))


def commit(wanted: Commit, machine: GroupMachine, token: Token, now: Now) -> Effects:
    """The command that commits a part of a request."""
    return machine.offsets.commit(wanted, token, now)


def commit_each(call: GroupCall, request: OffsetCommitRequest) -> None:
    """Commit the existing partitions of a request that is not packed."""
    objects = sum(1 + len(topic.partitions) for topic in request.topics)
    call.append_in_slices(committing(call, request, objects), objects, ended)


def committing(call: GroupCall, request: OffsetCommitRequest, objects: int) -> Generator[None, None, None]:
    """Commit in parts that fit into one loop iteration, and answer when all of them are committed."""
    commits, refused = yield from wanted_of(call, request)
    size = OBJECTS_MAX if len(commits) <= OBJECTS_MAX else COMMITS_AT_ONCE
    parts = [commits[at : at + size] for at in range(0, len(commits), size)]
    if not commits and not refused:  # the group and its member are checked all the same
        parts.append([])
    wanted = Commit(
        group=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        group_instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
        member_epochs=call.version >= MEMBER_EPOCH_SINCE,
    )
    commands = [partial(commit, wanted._replace(partitions=part)) for part in parts]

    def committed(results: list[CommitResult]) -> None:
        outcomes = chain.from_iterable(errors(call, part, done) for part, done in zip(parts, results, strict=True))
        call.answer_from(answer(request, refused, outcomes, call.elements), objects)

    yield from call.context.groups.submit_each(request.group_id, commands, CommitResult, call.guard(committed))


def wanted_of(
    call: GroupCall, request: OffsetCommitRequest
) -> Generator[None, None, tuple[list[PartitionCommit], Refused]]:
    """Return the commits of existing partitions, and the errors of the others."""
    commits: list[PartitionCommit] = []
    refused: Refused = {}
    for at, topic in enumerate(request.topics):
        found, unknown = topic_of(call, topic)
        name, topic_id, count = ("", ZERO_UUID, 0) if found is None else of_image(found)
        for position, part in enumerate(topic.partitions):
            index = part.partition_index
            if 0 <= index < count:
                epoch = part.committed_leader_epoch
                commits.append(
                    commit_of((name, index, part.committed_offset, epoch, part.committed_metadata, topic_id))
                )
            else:
                refused[at, position] = unknown
            yield
        yield
    return commits, refused


def of_image(topic: TopicImage) -> tuple[str, bytes, int]:
    """Return name, id and number of partitions."""
    return topic.name, topic.topic_id, len(topic.partitions)


def topic_of(call: GroupCall, topic: OffsetCommitRequest.OffsetCommitRequestTopic) -> tuple[TopicImage | None, int]:
    """Return a topic of the request, and the error of its partitions if it does not exist."""
    if call.version >= TOPIC_ID_SINCE:
        found = call.context.image.topics_by_id.get(topic.topic_id)
        return found, KafkaErrorCode.UNKNOWN_TOPIC_ID if found is None else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return call.context.image.topics.get(topic.name), KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def errors(call: GroupCall, commits: list[PartitionCommit], done: CommitResult) -> Iterator[int]:
    """Yield the error of each committed partition."""
    error = error_of(call, done)
    return iter([error] * len(commits) if error else done.errors)


def error_of(call: GroupCall, done: CommitResult) -> int:
    """Return the error of all partitions as this version reports it."""
    if done.error and done.error == KafkaErrorCode.GROUP_ID_NOT_FOUND and call.version < MEMBER_EPOCH_SINCE:
        return KafkaErrorCode.ILLEGAL_GENERATION
    return done.error


def answer(
    request: OffsetCommitRequest, refused: Refused, outcomes: Iterator[int], elements: Callable[[], ResponseArray]
) -> Generator[None, None, OffsetCommitResponse]:
    """Build the response; `outcomes` has the errors of the partitions that were committed."""
    topics = elements()
    for at, topic in enumerate(request.topics):
        partitions = elements()
        for position, part in enumerate(topic.partitions):
            partitions.add(outcome(part.partition_index, refused.get((at, position)) or next(outcomes)))
            yield
        listed = partitions.finish()
        topics.add(Topic(name=topic.name, topic_id=topic.topic_id or ZERO_UUID, partitions=listed), 1 + len(listed))
        yield
    return OffsetCommitResponse(topics=topics.finish())


@lru_cache(maxsize=1_024)
def outcome(partition_index: int, error: int) -> Partition:
    """Return one partition of a response; responses share it, as they are only encoded."""
    return Partition(partition_index=partition_index, error_code=error)
