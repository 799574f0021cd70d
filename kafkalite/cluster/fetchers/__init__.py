"""Fetches the records of the partitions that this broker follows: `replica_fetchers` is the interface."""
