from libc.stdint cimport int64_t, uint8_t

from kafkalite._speedups.storage.file cimport File
from kafkalite._speedups.wire.wire cimport BatchHeader

cdef enum:
    WINDOW_BYTES = 4096
    COLD = 2                  # what a walk answers where the next bytes are not in memory


cdef struct Window:
    # A piece of a file, so that the headers of small batches cost one system call together.
    int64_t start
    int64_t size
    bint wait                 # the disk may be waited for
    bint recent               # we wrote these bytes lately: where nobody can tell, they are in memory
    int64_t brought_from      # a job has just brought in what lies between these two
    int64_t brought_to
    uint8_t data[WINDOW_BYTES]


cdef int fill(File file, Window *window, int64_t position, int64_t wanted) except -1
cdef int header_at(File file, Window *window, int64_t position, int64_t limit, BatchHeader *out) except -1
