"""The message codec for other extensions; see codec.pyx for the laws."""


cdef class RequestHeader:
    cdef readonly int api_key
    cdef readonly int api_version
    cdef readonly int correlation_id
    cdef readonly str client_id
    cdef readonly object body
    cpdef release(self)


cpdef RequestHeader read_request_header(frame)
cpdef object decode(cls, int version, body, bint exact=*, Py_ssize_t elements_max=*)
cpdef bytes response_header(cls, int version, int correlation_id)
