"""Stores the metadata that all brokers share: ZooKeeper's tree of znodes with Kafka's paths.

`tree` is the pure tree; `embedded` runs it in this process with a journal file; `znodes` has Kafka's paths and formats.
`backend` is the interface of every backend, with the guarantees for its users.
"""
