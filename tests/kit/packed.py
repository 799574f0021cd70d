"""Commits as they come from a socket: in one piece, without an object for each partition."""

from itertools import groupby

from kafkalite._speedups.codec import encode
from kafkalite._speedups.groups.offset_commit_request import PackedCommit, read_packed
from kafkalite.model import ZERO_UUID
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.state.groups.offsets.manager import Commit, PartitionCommit

VERSION = 9  # the last one with names
ELEMENTS_MAX = 100_000
PARTITIONS_MAX = 2**31 - 1

Topic = OffsetCommitRequest.OffsetCommitRequestTopic
Partition = Topic.OffsetCommitRequestPartition


def read(request: OffsetCommitRequest, version: int = VERSION) -> PackedCommit | None:
    """A request after its way over the wire; None where the common way serves it."""
    return read_packed(version, encode(request, version), ELEMENTS_MAX)


def in_one_piece(commit: Commit) -> Commit:
    """The same commit; all its topics exist, with every partition that it names."""
    assert commit.producer_id == commit.retention_ms == -1, "such a commit has no fast way"
    runs = [(of, list(parts)) for of, parts in groupby(commit.partitions, key=lambda of: (of.topic, of.topic_id))]
    packed = read(
        OffsetCommitRequest(
            group_id=commit.group,
            generation_id_or_member_epoch=commit.generation,
            member_id=commit.member_id,
            group_instance_id=commit.group_instance_id,
            topics=[
                Topic(
                    name=name,
                    partitions=[
                        Partition(
                            partition_index=of.partition,
                            committed_offset=of.offset,
                            committed_leader_epoch=of.leader_epoch,
                            committed_metadata=of.metadata,
                        )
                        for of in parts
                    ],
                )
                for (name, _), parts in runs
            ],
        )
    )
    assert packed is not None
    for at, ((name, topic_id), _) in enumerate(runs):
        assert packed.offsets.locate(at, name, topic_id, PARTITIONS_MAX)
    return commit._replace(partitions=(), packed=packed.offsets)


def located(packed: PackedCommit) -> PackedCommit:
    """Every topic under its own name, or one that stands for its id."""
    for at, named in enumerate(packed.topics):
        assert packed.offsets.locate(at, *name_and_id(named), PARTITIONS_MAX)
    return packed


def name_and_id(named: str | bytes) -> tuple[str, bytes]:
    """Name and id of a topic that is named so in a request."""
    return (named.hex(), named) if isinstance(named, bytes) else (named, ZERO_UUID)


def wanted(request: OffsetCommitRequest, version: int) -> list[PartitionCommit]:
    """What the common way makes of it."""
    return [
        PartitionCommit(
            topic.topic_id.hex() if version >= 10 else topic.name,
            part.partition_index,
            part.committed_offset,
            part.committed_leader_epoch,
            part.committed_metadata,
            topic.topic_id if version >= 10 else ZERO_UUID,
        )
        for topic in request.topics
        for part in topic.partitions
    ]


def whole(request: OffsetCommitRequest, version: int) -> tuple[object, ...]:
    """All fields of a request."""
    return (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        wanted(request, version),
    )


def whole_packed(packed: PackedCommit) -> tuple[object, ...]:
    """The same of one in one piece."""
    parts = located(packed).offsets.partitions(PartitionCommit)
    return packed.group_id, packed.generation, packed.member_id, packed.group_instance_id, parts
