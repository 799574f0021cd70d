from libc.stdint cimport int64_t

from kafkalite._speedups.storage.file cimport File
from kafkalite._speedups.storage.index cimport OffsetIndex
from kafkalite._speedups.storage.header_window cimport Window
from kafkalite._speedups.wire.wire cimport BatchHeader

cdef enum:
    # Beside 0 (none), 1 (found) and COLD.
    DOUBT = 3                 # what was found does not fit to what lies before it
    DAMAGED = 4               # the batch that is looked for is damaged


cdef class DamagedHeaderSearch:
    cdef File file
    cdef OffsetIndex index
    cdef Window *window       # of the caller, whose window must outlive this
    cdef int64_t base_offset  # no batch begins below
    cdef int64_t bound        # nor ends at or above
    cdef int64_t size
    cdef int64_t cold         # where COLD came up

    cdef int find(self, int64_t offset, int64_t *position, BatchHeader *out) except -1
    cdef int walk_on(self, int64_t *position, BatchHeader *out) except -1
    cdef int accept(self, int64_t position, const BatchHeader *header, int64_t expected) except -1
    cdef int whole_at(self, int64_t position, BatchHeader *out) except -1
    cdef int checked(self, int64_t position, const BatchHeader *header) except -1
    cdef int next_header(self, int64_t *position, int64_t limit, BatchHeader *out) except -1
    cdef int leads_on(self, int64_t position, int64_t limit) except -1


cdef DamagedHeaderSearch resync(File file, OffsetIndex index, Window *window,
                                int64_t base_offset, int64_t bound, int64_t size)
