"""The settings of a consumer's fetches."""

from typing import NamedTuple


class FetchSettings(NamedTuple):
    """The settings of a fetcher, sizes in bytes, times in seconds.

    Attributes:
        min_bytes: a broker waits until it has so much, at most `max_wait_s`.
        max_wait_s: how long a broker waits for records.
        max_bytes: largest response, unless its first batch is larger.
        partition_max_bytes: of one partition in a response, unless its first batch is larger. While a partition has so
            much buffered, it is not fetched.
        buffer_max_bytes: of all responses in memory whose records are not read yet, and of the open requests; also of
            the batches that are decompressed and not read to their ends.
        isolation_level: 0 = read_uncommitted, 1 = read_committed.
        rack: of this consumer; brokers may name a replica in it (KIP-392). "" = none.
        retry_backoff_s, retry_backoff_max_s: pause after an error; it doubles with each failure, up to the second.
        preferred_replica_max_age_s: how long a replica is fetched from before the leader is asked again.
    """

    min_bytes: int = 1
    max_wait_s: float = 0.5
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 1 << 20
    buffer_max_bytes: int = 64 << 20
    isolation_level: int = 0
    rack: str = ""
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    preferred_replica_max_age_s: float = 300.0
