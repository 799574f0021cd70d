from libc.stdint cimport int64_t

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len


cdef enum:
    # Results of `read_now` other than a number of bytes.
    NOT_RESIDENT = -2
    RESIDENCE_UNKNOWN = -3


cdef class File:
    cdef readonly str path
    cdef readonly int fd
    cdef bint watched          # a subclass that receives every operation
    cdef int write_vec(self, iovec *parts, int count, int64_t offset) except -1
    cdef Py_ssize_t read_into(self, void *target, Py_ssize_t size, int64_t offset) except -1
    cdef Py_ssize_t read_now(self, void *target, Py_ssize_t size, int64_t offset) except -1
    cdef int resident_now(self, int64_t offset, int64_t size) except -2


cdef class FileRegion:
    cdef readonly File file
    cdef readonly int64_t offset
    cdef readonly int64_t length


cdef class Disk:
    cdef object __weakref__
