"""How long the leader may keep a fetch that has no records: `replica.fetch.wait.max.ms`, and shorter after an election.

A fetch names the partitions that the follower knows when it leaves. A broker that begins to lead more partitions
answers the waiting fetches of its followers early, without records; but a follower may receive the state of these
partitions only after its next fetch has left. So the waits after such a response begin with `SHORT_MS`, and double
until one lasts as long as configured.

Pure. Deviation: Kafka's follower always waits as long as configured, so that records of a partition that has moved are
acknowledged up to 0.5 s late.
"""

SHORT_MS = 10
EARLY = 0.9  # a response after less than this part of the wait is early


class FetchWait:
    """The waits of the fetches of one session. Times in seconds, monotonic."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self._wait_ms = 0
        self._next_ms: int | None = None  # None = as configured

    def begin(self, configured_ms: int, now: float) -> int:
        """Return the `max_wait_ms` of a fetch that leaves now.

        Arguments:
            configured_ms: `replica.fetch.wait.max.ms`.
            now: the time.
        """
        if self._next_ms is not None and self._next_ms >= configured_ms:
            self._next_ms = None
        self._began_s = now
        self._wait_ms = configured_ms if self._next_ms is None else self._next_ms
        return self._wait_ms

    def end(self, now: float, *, is_empty: bool) -> None:
        """The response has arrived; one without partitions is empty."""
        if not is_empty:
            return
        if (now - self._began_s) * 1000 < self._wait_ms * EARLY:
            self._next_ms = SHORT_MS
        elif self._next_ms is not None:
            self._next_ms *= 2
