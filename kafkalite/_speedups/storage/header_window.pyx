"""A small piece of a file of batches, and the headers in it.

Laws:
1. Whoever must not wait for the disk is told COLD, and nothing was read then.
2. A header that is answered is sane by itself: its batch lies below the limit, and its offsets can be added up.
   Whether it is true only its neighbours and the CRC can say, see `resync`.
"""

from libc.stdint cimport int64_t

from kafkalite._speedups.storage.file cimport NOT_RESIDENT, RESIDENCE_UNKNOWN, File
from kafkalite._speedups.wire.wire cimport HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader, read_batch_header

cdef int64_t OFFSET_MAX = <int64_t> 1 << 62


cdef int fill(File file, Window *window, int64_t position, int64_t wanted) except -1:
    """Read a piece of the file into the window; answer 0, or COLD where its first header is not in memory."""
    cdef Py_ssize_t got = RESIDENCE_UNKNOWN
    if not window.wait:
        got = file.read_now(window.data, wanted, position)
        if got == RESIDENCE_UNKNOWN:
            if not window.recent and not window.brought_from <= position < window.brought_to:
                return COLD
        elif got == NOT_RESIDENT or got < min(wanted, <int64_t> HEADER_SIZE):
            return COLD
    if got == RESIDENCE_UNKNOWN:
        got = file.read_into(window.data, wanted, position)
    window.size = got
    window.start = position
    return 0


cdef int header_at(File file, Window *window, int64_t position, int64_t limit, BatchHeader *out) except -1:
    """Read the header of the batch at `position`; answer 1, 0 where no whole batch lies below `limit`, or COLD."""
    cdef int64_t at = position - window.start
    if limit - position < HEADER_SIZE:
        return 0
    if at < 0 or at + HEADER_SIZE > window.size:
        if fill(file, window, position, min(<int64_t> WINDOW_BYTES, limit - position)) == COLD:
            return COLD
        at = 0
    if read_batch_header(window.data + at, window.size - at, out) < 0:
        return 0
    if out.batch_length < HEADER_SIZE - LENGTH_OVERHEAD or out.batch_length > limit - position - LENGTH_OVERHEAD:
        return 0
    return out.magic == 2 and out.last_offset_delta >= 0 and 0 <= out.base_offset <= OFFSET_MAX
