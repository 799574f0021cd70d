"""Kafka's configuration: keys, snapshots, files and changes by request.

`keys` says what a key is; the `table_*` modules hold one row per key, by subject; `definitions` joins them. `broker`
and `topic` are the frozen snapshots everybody reads, `files` brings the texts together, `dynamic` serves the requests.

Laws: a snapshot is replaced whole, never changed. A key is honoured as Kafka means it, or said to be without effect, or
refused, or unknown. A wrong value is told with its key and with what is allowed.
"""
