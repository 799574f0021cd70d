"""The fast way of `group_records` for committed offsets, which are nearly all that `__consumer_offsets` holds, and the
hash that finds a group's partition of it. What it does not serve goes the common way.
"""

from kafkalite._speedups.commits import append_commits, java_hash, read_commit

__all__ = ["append_commits", "java_hash", "read_commit"]
