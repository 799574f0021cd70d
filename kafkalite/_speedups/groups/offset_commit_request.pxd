from libc.stdint cimport int32_t, int64_t

from kafkalite._speedups.records.batches cimport Builder
from kafkalite._speedups.wire.strings cimport Text
from kafkalite._speedups.wire.wire cimport Span

cdef struct Part:
    int64_t offset
    Text metadata                 # within the copy of the request
    int32_t index
    int32_t leader_epoch

cdef struct Run:                  # a topic of the request
    Text name                     # or its id, from version 10 on; within the copy of the request
    Py_ssize_t first              # of its parts
    Py_ssize_t count


cdef class PackedCommit:
    cdef bytes copy               # of the request; the pointers of parts and runs lie in it
    cdef Part *parts
    cdef Py_ssize_t parts_count
    cdef Py_ssize_t parts_room
    cdef Run *runs
    cdef Py_ssize_t runs_count
    cdef int version
    cdef list located             # (name, id) by topic, as `locate` was told
    cdef readonly Py_ssize_t metadata_longest
    cdef readonly str group_id
    cdef readonly str member_id
    cdef readonly object group_instance_id
    cdef readonly int32_t generation
    cdef readonly list topics

    cdef int read(self, Span *span, int64_t elements_max) except -1
    cdef int read_topics(self, Span *span, bint flexible, int64_t elements_max) except -1
    cdef int read_parts(self, Span *span, Run *run, bint flexible, int64_t parts_max) except -1
    cdef int reserve(self, Py_ssize_t n) except -1
    cdef tuple partition_of(self, Py_ssize_t at)
    cdef int append_to(self, Builder builder, str group, int64_t timestamp, int64_t commit_ms) except -1
