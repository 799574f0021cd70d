"""Reads and changes the configuration: keys, snapshots, files and changes by request.

`keys` defines what a key is; the `table_*` modules hold one row per key, by subject; `definitions` joins them. `broker`
and `topic` are the frozen snapshots that the other packages read, `files` reads the static texts, `describe_and_alter`
serves the requests.

1. A snapshot is replaced whole, never changed.
2. A key is honoured as Kafka means it, without effect, refused, or unknown.
3. The error of a wrong value names the key and the allowed values.
"""
