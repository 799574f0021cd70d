"""Divides the file descriptors of the process between logs and connections.

The limit is that of the process (RLIMIT_NOFILE). It is read, never changed: `kafkalite serve` raises it, an embedding
process manages its own. The kernel assigns the lowest free number, so the number of a new descriptor is at most the
count of open ones: a connection whose number reaches `refuse_from` is rejected, whatever holds the others.
"""

import resource
from typing import NamedTuple

RESERVED_SHARE = 4  # of the limit
RESERVED_MIN = 32  # a roll, a flush, the journal, and the sockets that listen
RESERVED_MAX = 4096  # 512 closed segments of three files, checkpoints, directories, and growth of the logs


class Descriptors(NamedTuple):
    """The limit and its parts; `limit` and `refuse_from` are None where the process has no limit."""

    limit: int | None
    reserved: int
    refuse_from: int | None


def descriptors_of(soft_limit: int) -> Descriptors:
    """Divide a limit (RLIM_INFINITY for none) into the parts of logs and connections."""
    if soft_limit == resource.RLIM_INFINITY:
        return Descriptors(None, RESERVED_MAX, None)
    reserved = min(RESERVED_MAX, max(RESERVED_MIN, soft_limit // RESERVED_SHARE))
    return Descriptors(soft_limit, reserved, max(soft_limit - reserved, soft_limit // 2))


def descriptors_of_process() -> Descriptors:
    """Divide the limit of this process."""
    return descriptors_of(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
