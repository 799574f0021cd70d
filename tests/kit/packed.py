"""Commits as they come from a socket: in one piece, without an object for each partition."""

from itertools import groupby

from kafkalite._speedups.codec import encode
from kafkalite._speedups.packed_commits import PackedCommit, read_packed
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.state.offsets import Commit

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
        assert packed.locate(at, name, topic_id, PARTITIONS_MAX)
    return commit._replace(partitions=(), packed=packed)
