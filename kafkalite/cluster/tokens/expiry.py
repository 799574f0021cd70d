"""Removes expired delegation tokens, on the controller, every `delegation.token.expiry.check.interval.ms`."""

from collections.abc import Callable

from kafkalite.clock import Clock
from kafkalite.cluster.tokens.store import DelegationTokens


class TokenExpiry:
    """The periodic removal; the end of the clock ends it.

    Arguments:
        tokens: of the cluster.
        clock: of the broker.
        interval_ms: between two checks.
        is_controller: whether this broker removes tokens now.
    """

    def __init__(
        self, tokens: DelegationTokens, clock: Clock, interval_ms: int, is_controller: Callable[[], bool]
    ) -> None:
        self._tokens = tokens
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._is_controller = is_controller

    def start(self) -> None:
        """Begin; the first check is one interval from now."""
        self._clock.call_at(self._clock.monotonic() + self._interval_s, self._check)

    def _check(self) -> None:
        self.start()
        if self._is_controller():
            self._tokens.remove_expired()
