"""Checks compacted segments whose swap was interrupted by a crash, because a start assumes that they are complete.

Nothing is changed.
"""

import os
from collections.abc import Iterator

from kafkalite._speedups.storage.file import Disk
from kafkalite.storage import names
from kafkalite.storage.log import segment_swap
from kafkalite.storage.verify.verify_files import check_offset_index, check_time_index
from kafkalite.storage.verify.verify_segments import NOWHERE, Advance, Batches, SegmentReader, Violation

READY_IS_WHOLE = 16


def check_swaps(disk: Disk, directory: str, present: list[str], advance: Advance) -> Iterator[Violation]:
    """Every `.log.swap` that is ready, by the names in the directory. Raises OSError."""
    for base in segment_swap.ready(segment_swap.work_files(present)):
        yield from _check(disk, directory, base, present, advance)


def _check(disk: Disk, directory: str, base: int, present: list[str], advance: Advance) -> Iterator[Violation]:
    """Every batch is whole, and its indexes are there and lead to them."""
    path = os.path.join(directory, names.file_name(base, names.LOG) + names.SWAP)
    if disk.size(path) == 0:  # replaces nothing
        return
    batches = Batches(path, base)
    for violation in SegmentReader(disk, compacted=True, advance=advance).read(path, batches):
        yield violation._replace(number=READY_IS_WHOLE)
    for suffix in (names.INDEX, names.TIME_INDEX):
        name = names.file_name(base, suffix)
        index = os.path.join(directory, name + names.SWAP)
        if name + names.SWAP in present:
            for violation in _check_index(disk, index, suffix, batches):
                yield violation._replace(number=READY_IS_WHOLE)
        elif name not in present:  # it may have its last name already
            yield Violation(READY_IS_WHOLE, index, NOWHERE, "is missing")


def _check_index(disk: Disk, path: str, suffix: str, batches: Batches) -> Iterator[Violation]:
    if suffix == names.INDEX:
        return check_offset_index(disk, path, batches, preallocated=True)
    return check_time_index(disk, path, batches, closed=True, preallocated=True)
