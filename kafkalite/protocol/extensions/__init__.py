"""kafkalite's own requests: API keys from 10000, for groups whose assignment is made by the broker.

Laws:
1. All are flexible from version 0, so a later field is a tagged one where it can be.
2. A Kafka client ignores keys that it does not know, so they may stand in ApiVersions beside Kafka's.
3. docs/protocol-extensions.md is made from these classes; a field's line under "Attributes" is its description there.

Members leave by LeaveGroup, commit by OffsetCommit and read by OffsetFetch, with the consumer id as member id and the
generation that RegisterConsumer gave them.
"""
