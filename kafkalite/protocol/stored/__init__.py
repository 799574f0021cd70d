"""What the internal topics hold: keys and values of their records, as Kafka's coordinators write them.

Laws:
1. A key is an int16 record type and the fields of that type; it is never flexible and has no versions.
2. A value is an int16 version and the fields of that version. A null value is a tombstone.
3. Every version that Kafka 4.3 reads is read; the version written is the one that Kafka 4.3 writes.
4. Record types from 10000 are kafkalite's own. Kafka's loaders and tools skip types that they do not know.
"""
