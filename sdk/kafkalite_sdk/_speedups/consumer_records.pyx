# cython: nonecheck=True
"""Records of a consumer: light objects that read key, value, headers and timestamp from their batch.

1. A record is one object of 64 bytes. Its fields are read when they are asked for; a deserializer is called once.
2. A record keeps its batch in memory, and nothing else of the response that it came with.

The garbage collector does not track records: a cycle through a deserialized value that refers to its own record is
not freed. Sources: DefaultRecord.java of Apache Kafka 4.3.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkalite._speedups.records.record_walk cimport (
    FAULT_HEADERS,
    FAULT_LENGTH,
    FAULT_MISSING,
    FAULT_OFFSET,
    FAULT_TRAILING,
    RecordFields,
    read_record,
    short_varint,
)
from kafkalite._speedups.wire.wire cimport Span, take

from types import GenericAlias

from kafkalite.model import TopicPartition
from kafkalite_sdk.values import format_data

__all__ = ["CREATE_TIME", "LOG_APPEND_TIME", "NO_TIMESTAMP", "Record", "RecordDecoder", "by_partition"]

NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME = -1, BY_CREATE_TIME, BY_LOG_APPEND_TIME

cdef enum:
    KEY_READ = 1
    VALUE_READ = 2
    HEADERS_READ = 4


@cython.final
@cython.no_gc
cdef class RecordBatch:
    """The records of one batch in memory, decompressed, and what its records have in common."""


cdef bytes nullable(const uint8_t *at, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *> at, size)


cdef tuple read_headers(Span span, int32_t count):
    """Headers whose framing `read_record` has checked. Invalid UTF-8 in names becomes U+FFFD, as in Java."""
    cdef list headers = []
    cdef const uint8_t *name
    cdef int32_t name_size
    cdef int32_t value_size
    cdef int32_t _i
    for _i in range(count):
        name_size = short_varint(&span)
        name = take(&span, name_size)
        value_size = short_varint(&span)
        headers.append((
            PyUnicode_DecodeUTF8(<const char *> name, name_size, "replace"),
            nullable(take(&span, max(value_size, 0)), value_size),
        ))
    return tuple(headers)


cdef int64_t timestamp_of(Record record, RecordFields *fields) noexcept:
    """The timestamp of a record in ms; LogAppendTime is that of its batch."""
    if record.batch.timestamp_type == BY_LOG_APPEND_TIME:
        return record.batch.append_timestamp
    return <int64_t> (<uint64_t> record.batch.base_timestamp + <uint64_t> fields.timestamp_delta)


@cython.final
@cython.no_gc
@cython.freelist(4096)
cdef class Record:
    """A record of a partition; see fetched_records.pyi."""

    @classmethod
    def __class_getitem__(cls, types, /):
        return GenericAlias(cls, types)

    cdef int fields(self, RecordFields *out) except -1:
        """Read the record; its framing was checked before."""
        cdef Span span
        span.at = self.batch.records + self.at
        span.left = self.batch.size - self.at
        if read_record(&span, out):
            raise AssertionError("the bytes of a record have changed")
        return 0

    @property
    def topic(self):
        return self.batch.topic

    @property
    def partition(self):
        return self.batch.partition

    @property
    def leader_epoch(self):
        return self.batch.leader_epoch

    @property
    def timestamp_type(self):
        return self.batch.timestamp_type

    @property
    def timestamp_ms(self):
        cdef RecordFields fields
        self.fields(&fields)
        return timestamp_of(self, &fields)

    @property
    def key(self):
        cdef RecordDecoder decoder = self.batch.decoder
        cdef RecordFields fields
        if not self.flags & KEY_READ:
            self.fields(&fields)
            key = nullable(fields.key, fields.key_size)
            if decoder.key_deserializer is not None and key is not None:
                key = self.deserialized(decoder.key_deserializer, decoder.key_in_context, key, "key")
            self.key_object = key
            self.flags |= KEY_READ
        return self.key_object

    @property
    def value(self):
        cdef RecordDecoder decoder = self.batch.decoder
        cdef RecordFields fields
        if not self.flags & VALUE_READ:
            self.fields(&fields)
            value = nullable(fields.value, fields.value_size)
            if decoder.value_deserializer is not None and value is not None:
                value = self.deserialized(decoder.value_deserializer, decoder.value_in_context, value, "value")
            self.value_object = value
            self.flags |= VALUE_READ
        return self.value_object

    @property
    def headers(self):
        cdef RecordFields fields
        if not self.flags & HEADERS_READ:
            self.fields(&fields)
            self.header_objects = read_headers(fields.headers, fields.headers_count) if fields.headers_count else ()
            self.flags |= HEADERS_READ
        return self.header_objects

    @property
    def raw_key(self):
        cdef RecordFields fields
        self.fields(&fields)
        return nullable(fields.key, fields.key_size)

    @property
    def raw_value(self):
        cdef RecordFields fields
        self.fields(&fields)
        return nullable(fields.value, fields.value_size)

    cdef object deserialized(self, deserializer, bint in_context, bytes data, str field):
        """The object of a key or value; an exception names the record."""
        try:
            return deserializer(self.batch.topic, self.headers, data) if in_context else deserializer(data)
        except Exception as error:
            error.add_note(f"in the {field} of {self.batch.topic}-{self.batch.partition} at offset {self.offset}")
            raise

    def __repr__(self):
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp_ms={self.timestamp_ms}, key={format_data(self.raw_key)}, value={format_data(self.raw_value)})"
        )


def by_partition(list records not None):
    """Records by partition; see consumer_records.pyi."""
    cdef dict found = {}
    cdef list same = None
    cdef RecordBatch batch = None
    cdef Record record
    for record in records:
        if record.batch is not batch:
            batch = record.batch
            same = found.setdefault(TopicPartition(batch.topic, batch.partition), [])
        same.append(record)
    return found


@cython.final
cdef class RecordDecoder:
    """How a consumer decodes records; see fetched_records.pyi."""

    def __cinit__(
        self,
        *,
        key_deserializer=None,
        value_deserializer=None,
        bint read_committed=False,
        bint check_crcs=True,
        int64_t decompressed_max=134217728,
        Py_ssize_t offload_bytes=0,
    ):
        self.key_in_context = hasattr(key_deserializer, "deserialize")
        self.key_deserializer = key_deserializer.deserialize if self.key_in_context else key_deserializer
        self.value_in_context = hasattr(value_deserializer, "deserialize")
        self.value_deserializer = value_deserializer.deserialize if self.value_in_context else value_deserializer
        self.read_committed = read_committed
        self.check_crcs = check_crcs
        self.decompressed_max = decompressed_max
        self.offload_bytes = offload_bytes

    @classmethod
    def __class_getitem__(cls, types, /):
        return GenericAlias(cls, types)

cdef str fault_text(int fault):
    """Why a record cannot be read, by its RecordFault."""
    if fault == FAULT_MISSING:
        return "the batch has fewer records than it claims"
    if fault == FAULT_LENGTH:
        return "the length of a record reaches past its batch"
    if fault == FAULT_HEADERS:
        return "a header of a record is malformed"
    if fault == FAULT_OFFSET:
        return "the offset of a record is not between its neighbours"
    if fault == FAULT_TRAILING:
        return "bytes are left after the last record of the batch"
    return "a record is malformed, its fields do not fill its length"
