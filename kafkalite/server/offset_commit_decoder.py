"""The fast way of OffsetCommit requests, which consumers send all the time: read in one piece, by C. What it does not
serve goes the common way.
"""

from typing import Any

from kafkalite._speedups.codec.codec import decode
from kafkalite._speedups.groups.offset_commit_request import PackedCommit, read_packed

__all__ = ["PackedCommit", "decode_commit"]


def decode_commit(cls: type[Any], version: int, body: memoryview, exact: bool, elements_max: int) -> Any:
    """`codec.decode` of OffsetCommitRequest, or a PackedCommit, for which no bytes behind the message are refused."""
    packed = read_packed(version, body, elements_max)
    return decode(cls, version, body, exact, elements_max) if packed is None else packed
