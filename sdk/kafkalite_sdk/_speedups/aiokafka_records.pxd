"""aiokafka's records."""

from libc.stdint cimport int64_t


cdef class ConsumerRecord:
    cdef public object topic
    cdef public int partition
    cdef public int64_t offset
    cdef public int64_t timestamp
    cdef public int timestamp_type
    cdef public object key
    cdef public object value
    cdef public object checksum
    cdef public int serialized_key_size
    cdef public int serialized_value_size
    cdef public object headers
    cdef dict added                   # attributes of programs, None = there are none
