"""aiokafka's records."""


cdef class ConsumerRecord:
    cdef public object topic
    cdef public object partition
    cdef public object offset
    cdef public object timestamp
    cdef public object timestamp_type
    cdef public object key
    cdef public object value
    cdef public object checksum
    cdef public object serialized_key_size
    cdef public object serialized_value_size
    cdef public object headers
