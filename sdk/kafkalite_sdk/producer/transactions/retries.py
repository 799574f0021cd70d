"""The pauses of a transactional producer before it repeats a request."""

from math import inf

from kafkalite.backoff import Backoff


class Retries:
    """The pauses before requests are repeated.

    Arguments:
        backoff: after a retriable error.
        short_backoff: while the previous transaction is still completing.

    Attributes:
        retry_at: when the pause ends, in seconds of the driver's clock; -infinity = there is none.
    """

    __slots__ = ("_backoff", "_failures", "_short_backoff", "retry_at")

    def __init__(self, backoff: Backoff, short_backoff: Backoff) -> None:
        self._backoff = backoff
        self._short_backoff = short_backoff
        self._failures = 0
        self.retry_at = -inf

    def failed(self, now: float, *, short: bool) -> None:
        """A request has failed.

        Arguments:
            now: in seconds of the driver's clock.
            short: whether the previous transaction is still completing.
        """
        self._failures += 1
        backoff = self._short_backoff if short else self._backoff
        self.retry_at = now + backoff.delay_s(self._failures)

    def succeeded(self) -> None:
        """A request has succeeded."""
        self._failures = 0
        self.retry_at = -inf

    def end(self) -> None:
        """Another request follows, which has no reason to wait."""
        self.retry_at = -inf
