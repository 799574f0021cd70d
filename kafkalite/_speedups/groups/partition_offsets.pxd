from libc.stdint cimport int32_t, int64_t

from kafkalite._speedups.wire.strings cimport Text

cdef struct PartitionOffset:
    int64_t offset
    Text metadata                 # points into `source`
    int32_t partition
    int32_t leader_epoch

cdef struct EntryRange:           # the entries of one topic
    Py_ssize_t first
    Py_ssize_t end


cdef class PartitionOffsets:
    cdef bytes source
    cdef PartitionOffset *entries
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef EntryRange *ranges
    cdef readonly Py_ssize_t topics_count
    cdef list located             # (name, id) of the topics that `locate` has resolved
    cdef readonly Py_ssize_t metadata_longest

    cdef int allocate_topics(self, Py_ssize_t count) except -1
    cdef int reserve(self, Py_ssize_t n) except -1
    cdef tuple topic_at(self, Py_ssize_t at)
