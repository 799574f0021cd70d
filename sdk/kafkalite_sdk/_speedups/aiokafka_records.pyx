# cython: nonecheck=True
"""aiokafka's records, filled from those of the engine in one pass over their bytes."""

from kafkalite._speedups.records.record_walk cimport RecordFields
from kafkalite_sdk._speedups.consumer_records cimport Record, RecordBatch, nullable, read_headers, timestamp_of

from types import GenericAlias

from kafkalite.model import TopicPartition

cdef extern from "Python.h":
    void PyObject_GC_Track(void *record)
    void PyObject_GC_UnTrack(void *record)
    int PyObject_GC_IsTracked(object record)
    int PyObject_GenericSetAttr(object record, object name, void *value) except -1

__all__ = ["ConsumerRecord", "converted", "converted_by_partition"]

FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "checksum",
    "serialized_key_size",
    "serialized_value_size",
    "headers",
)


cdef class ConsumerRecord:
    """A record as aiokafka returns it; see aiokafka_records.pyi."""

    __match_args__ = FIELDS
    __hash__ = None

    def __init__(
        self,
        topic,
        partition,
        offset,
        timestamp,
        timestamp_type,
        key,
        value,
        checksum,
        serialized_key_size,
        serialized_value_size,
        headers,
    ):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.checksum = checksum
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size
        self.headers = headers

    def __setattr__(self, name, value):
        if not PyObject_GC_IsTracked(self):  # a program may set an object that refers to the record
            PyObject_GC_Track(<void *> self)
        if name in FIELDS:
            PyObject_GenericSetAttr(self, name, <void *> value)
        elif self.added is None:
            self.added = {name: value}  # a `__dict__` would be created with each record
        else:
            self.added[name] = value

    def __getattr__(self, name):
        if self.added is None or name not in self.added:
            raise AttributeError(f"a ConsumerRecord has no attribute {name!r}")
        return self.added[name]

    def __setstate__(self, dict added):
        self.added = added

    @classmethod
    def __class_getitem__(cls, types, /):
        return GenericAlias(cls, types)

    def __eq__(self, other):
        if type(other) is not ConsumerRecord:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in FIELDS)

    def __repr__(self):
        return f"ConsumerRecord({', '.join(f'{name}={getattr(self, name)!r}' for name in FIELDS)})"

    def __reduce__(self):
        return ConsumerRecord, tuple(getattr(self, name) for name in FIELDS), self.added


def converted(Record record not None, key_deserializer=None, value_deserializer=None):
    """A record of the engine as one of aiokafka; see aiokafka_records.pyi."""
    return convert(record, key_deserializer, value_deserializer)


def converted_by_partition(list records not None, key_deserializer=None, value_deserializer=None):
    """Records of the engine as those of aiokafka by partition; see aiokafka_records.pyi."""
    cdef dict found = {}
    cdef list same = None
    cdef RecordBatch batch = None
    cdef Record record
    cdef bint releases = key_deserializer is None and value_deserializer is None
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t count = len(records)
    while at < count:
        record = records[at]
        try:
            converted_record = convert(record, key_deserializer, value_deserializer)
        except Exception:
            if at:
                break  # the next call raises it
            del records[0]
            raise
        if record.batch is not batch:
            batch = record.batch
            same = found.setdefault(TopicPartition(batch.topic, batch.partition), [])
        same.append(converted_record)
        if releases:
            records[at] = None  # so that its memory is used for the next ones
        at += 1
    del records[:at]
    return found


cdef ConsumerRecord convert(Record record, key_deserializer, value_deserializer):
    cdef ConsumerRecord found = ConsumerRecord.__new__(ConsumerRecord)
    cdef RecordFields fields
    record.fields(&fields)
    found.topic = record.batch.topic
    found.partition = record.batch.partition
    found.offset = record.offset
    found.timestamp = timestamp_of(record, &fields)
    found.timestamp_type = record.batch.timestamp_type
    found.key = nullable(fields.key, fields.key_size)
    found.value = nullable(fields.value, fields.value_size)
    found.serialized_key_size = fields.key_size
    found.serialized_value_size = fields.value_size
    found.headers = read_headers(fields.headers, fields.headers_count) if fields.headers_count else ()
    if key_deserializer is None and value_deserializer is None:
        PyObject_GC_UnTrack(<void *> found)  # it has text and bytes only: the collector need not visit it
        return found
    if key_deserializer is not None:
        found.key = deserialized(key_deserializer, found.key, record, "key")
    if value_deserializer is not None:
        found.value = deserialized(value_deserializer, found.value, record, "value")
    return found


cdef object deserialized(deserializer, data, Record record, str field):
    """The object of a key or value; an exception names the record."""
    try:
        return deserializer(data)
    except Exception as error:
        error.add_note(f"in the {field} of {record.batch.topic}-{record.batch.partition} at offset {record.offset}")
        raise
