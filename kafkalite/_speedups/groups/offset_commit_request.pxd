from libc.stdint cimport int32_t, int64_t

from kafkalite._speedups.groups.partition_offsets cimport PartitionOffsets
from kafkalite._speedups.wire.strings cimport Text
from kafkalite._speedups.wire.wire cimport Span

cdef enum:
    FLEXIBLE_SINCE = 8
    TOPIC_ID_SINCE = 10


cdef class PackedCommit:
    cdef bytes copy               # of the request; the names and the metadata point into it
    cdef Text *names              # of the topics, from version 10 on their ids
    cdef int version
    cdef readonly str group_id
    cdef readonly str member_id
    cdef readonly object group_instance_id
    cdef readonly int32_t generation
    cdef readonly list topics
    cdef readonly PartitionOffsets offsets

    cdef int read(self, Span *span, int64_t elements_max) except -1
    cdef int read_topics(self, Span *span, bint flexible, int64_t elements_max) except -1
    cdef int read_partitions(self, Span *span, Py_ssize_t at, bint flexible, int64_t partitions_max) except -1
