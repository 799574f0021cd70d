"""kafkalite's own requests: API keys from 10000, for registered groups, whose partitions the broker assigns.

1. All are flexible from version 0, so that later fields can be tagged.
2. A Kafka client ignores unknown keys, so ApiVersions lists them beside Kafka's.
3. docs/protocol-extensions.md is generated from these classes; the line of a field under "Attributes" is its
   description.

Members leave with LeaveGroup, commit with OffsetCommit and read with OffsetFetch; the member id is the consumer id, the
generation that of RegisterConsumer.
"""
