"""Decodes OffsetCommit requests: common ones by the fast path in C, all others by the codec."""

from typing import Any

from kafkalite._speedups.codec.codec import decode
from kafkalite._speedups.groups.offset_commit_request import PackedCommit, read_packed

__all__ = ["PackedCommit", "decode_commit"]


def decode_commit(cls: type[Any], version: int, body: memoryview, exact: bool, elements_max: int) -> Any:
    """Decode an OffsetCommit request as `codec.decode`, or as a PackedCommit, which ignores bytes behind the message.

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
