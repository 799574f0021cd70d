"""Keys and values of the records in internal topics, in the formats of Kafka's coordinators.

1. A key is an int16 record type and the fields of that type; it is never flexible and has no versions.
2. A value is an int16 version and the fields of that version. A null value is a tombstone.
3. Every version that Kafka 4.3 reads is read; the version written is the one that Kafka 4.3 writes.
4. Record types from 10000 are kafkalite's own. Kafka's loaders and tools skip unknown types.
"""
