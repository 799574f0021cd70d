"""The offsets of one commit: an array of C structs, without a Python object per partition.

The request decoder fills it, `state` stores it, `offset_commit_record` serializes it. It knows neither versions nor
formats.
1. Metadata is ASCII; it points into `source`, the decoder's copy of the request.
2. The entries of a topic are adjacent: `ranges` has the first and the end of each topic.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp

from kafkalite._speedups.wire.strings cimport decoded

cdef enum:
    UUID_SIZE = 16
    STORED_FIELDS = 6             # of the tuples that `put_into` makes

cdef extern from "Python.h":
    """
    /* A tuple of type `cls`, a subclass of tuple, from the items of `fields`: `tuple.__new__(cls, fields)`. */
    static inline PyObject *kl_new_tuple(PyTypeObject *cls, PyObject *fields) {
        PyObject *result, *arguments = PyTuple_Pack(1, fields);
        if (arguments == NULL) return NULL;
        result = PyTuple_Type.tp_new(cls, arguments, NULL);
        Py_DECREF(arguments);
        return result;
    }
    """
    object new_tuple "kl_new_tuple"(type cls, tuple fields)


@cython.final
@cython.no_gc
cdef class PartitionOffsets:
    """The offsets of one commit; see the .pyi."""

    def __dealloc__(self):
        free(self.entries)
        free(self.ranges)

    def __len__(self):
        return self.count

    # filling

    cdef int allocate_topics(self, Py_ssize_t count) except -1:
        """Allocate the empty ranges of `count` topics; called once."""
        self.ranges = <EntryRange *> calloc(max(count, <Py_ssize_t> 1), sizeof(EntryRange))
        if self.ranges == NULL:
            raise MemoryError
        self.topics_count = count
        self.located = []
        return 0

    cdef int reserve(self, Py_ssize_t n) except -1:
        """Allocate memory for `n` more entries."""
        cdef Py_ssize_t capacity
        cdef void *grown
        if self.count + n <= self.capacity:
            return 0
        capacity = max(self.count + n, 2 * self.capacity)
        grown = realloc(self.entries, capacity * sizeof(PartitionOffset))
        if grown == NULL:
            raise MemoryError
        self.entries = <PartitionOffset *> grown
        self.capacity = capacity
        return 0

    # resolving topics

    def locate(self, Py_ssize_t at, str name not None, bytes topic_id not None, Py_ssize_t partitions):
        """Set the name and the id of topic `at`, the next one. See the .pyi."""
        cdef Py_ssize_t i
        if at != len(self.located) or at >= self.topics_count:
            raise ValueError(f"topic {at} is not the next of {self.topics_count}, {len(self.located)} are located")
        if PyBytes_GET_SIZE(topic_id) != UUID_SIZE:
            raise ValueError(f"a topic id has 16 bytes, not {PyBytes_GET_SIZE(topic_id)}")
        for i in range(self.ranges[at].first, self.ranges[at].end):
            if not 0 <= self.entries[i].partition < partitions:
                return False
        self.located.append((name, topic_id))
        return True

    def located_topics(self):
        """Name and id of each topic, in order. See the .pyi."""
        if len(self.located) != self.topics_count:
            raise ValueError(f"{len(self.located)} of {self.topics_count} topics are located")
        return self.located

    cdef tuple topic_at(self, Py_ssize_t at):
        """Name and id of topic `at`. Raises ValueError before it is located."""
        if at >= len(self.located):
            raise ValueError(f"topic {at} is not located")
        return self.located[at]

    # reading

    def partitions(self, type record_type not None):
        """All partitions, each a `record_type`. See the .pyi."""
        cdef list partitions = []
        cdef Py_ssize_t at, i
        cdef PartitionOffset *entry
        for at in range(self.topics_count):
            name, topic_id = self.topic_at(at)
            for i in range(self.ranges[at].first, self.ranges[at].end):
                entry = &self.entries[i]
                fields = (name, entry.partition, entry.offset, entry.leader_epoch, decoded(entry.metadata), topic_id)
                partitions.append(tuple.__new__(record_type, fields))
        return partitions

    def put_into(self, dict partitions not None, Py_ssize_t at, type record_type not None, committed_ms, topic_id):
        """Put the offsets of topic `at` into a dict by partition. See the .pyi."""
        cdef PartitionOffset *entry
        cdef const PartitionOffset *last = NULL
        cdef Py_ssize_t i
        cdef str metadata = ""
        cdef object no_expiry = -1
        if not 0 <= at < self.topics_count:
            raise ValueError(f"there is no topic {at}")
        if not issubclass(record_type, tuple):
            raise TypeError(f"{record_type.__name__} is no tuple")
        if record_type is not tuple and len(record_type._fields) != STORED_FIELDS:
            raise TypeError(f"{record_type.__name__} has not {STORED_FIELDS} fields")
        for i in range(self.ranges[at].first, self.ranges[at].end):
            entry = &self.entries[i]
            if entry.metadata.size <= 0:
                fields = (entry.offset, entry.leader_epoch, "", committed_ms, no_expiry, topic_id)
            else:
                if last == NULL or not same_metadata(last, entry):
                    metadata = decoded(entry.metadata)
                last = entry
                fields = (entry.offset, entry.leader_epoch, metadata, committed_ms, no_expiry, topic_id)
            partitions[entry.partition] = new_tuple(record_type, fields)


cdef inline bint same_metadata(const PartitionOffset *one, const PartitionOffset *other) noexcept:
    return (
        one.metadata.size == other.metadata.size
        and memcmp(one.metadata.at, other.metadata.at, one.metadata.size) == 0
    )
