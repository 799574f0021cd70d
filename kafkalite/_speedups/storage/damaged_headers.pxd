from libc.stdint cimport int64_t

from kafkalite._speedups.storage.file cimport File
from kafkalite._speedups.storage.index cimport OffsetIndex
from kafkalite._speedups.storage.page_cache cimport Window
from kafkalite._speedups.wire.wire cimport BatchHeader


cdef class DamagedHeaderSearch:
    cdef File file
    cdef OffsetIndex index
    cdef Window *window       # of the caller, whose window must outlive this
    cdef int64_t base_offset  # no batch begins below
    cdef int64_t bound        # no batch ends at or above
    cdef int64_t size
    cdef int64_t missed       # position of the last page-cache miss

    cdef int find(self, int64_t offset, int64_t *position, BatchHeader *out) except -1
    cdef int next_batch(self, int64_t *position, BatchHeader *out) except -1
    cdef int offsets_fit(self, int64_t position, const BatchHeader *header, int64_t expected) except -1
    cdef int valid_batch_at(self, int64_t position, BatchHeader *out) except -1
    cdef int crc_matches(self, int64_t position, const BatchHeader *header) except -1
    cdef int scan_for_batch(self, int64_t *position, int64_t limit, BatchHeader *out) except -1
    cdef int batches_follow(self, int64_t position, int64_t limit) except -1


cdef DamagedHeaderSearch damaged_header_search(
    File file, OffsetIndex index, Window *window, int64_t base_offset, int64_t bound, int64_t size
)
