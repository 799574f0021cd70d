"""Reads the keys that verify the tokens of a listener: before the start ends, then by jobs.

1. Without keys the broker does not start (CVE-2026-33557). Later failures are reported, and the keys stay in use.
2. A file is read every `CHECK_S` seconds, a URL every `sasl.oauthbearer.jwks.endpoint.refresh.ms`; a failed read is
   repeated with a growing backoff.
3. A token with an unknown key makes the next read of a URL early, at most once in `EARLY_S` seconds, so that a client
   cannot make the broker send requests at will.
"""

import logging

from kafkalite.clock import Clock, Offload, Outcome, await_outcome
from kafkalite.config.oauthbearer import OAuthBearerSettings
from kafkalite.net.sasl.token_keys import read_keys
from kafkalite.net.sasl.token_validation import TokenValidator
from kafkalite.rate_limited_log import RateLimitedLog

CHECK_S = 5.0
EARLY_S = 60.0


class KeyRefresh:
    """Gives the keys of a listener to the validator of its tokens.

    Arguments:
        settings: where the keys are.
        clock, offload, log: of the broker.

    Attributes:
        validator: verifies tokens with the current keys.
    """

    def __init__(self, settings: OAuthBearerSettings, clock: Clock, offload: Offload, log: RateLimitedLog) -> None:
        self.validator = TokenValidator(settings, lambda: clock.wall_ms() / 1000)
        self._settings = settings
        self._clock = clock
        self._offload = offload
        self._log = log
        self._read_at = clock.monotonic()
        self._due_at = self._read_at
        self._failures = 0

    async def load(self) -> None:
        """Read the keys, and again from now on. Raises ValueError: there are none."""
        outcome = await await_outcome(lambda done: self._offload.run(read_keys, self._settings, done=done))
        self.validator.keys = outcome.result()
        self._plan()

    def _plan(self) -> None:
        """Plan the next read."""
        settings, self._read_at = self._settings, self._clock.monotonic()
        interval_s = CHECK_S if settings.path is not None else settings.refresh_s
        if self._failures:
            interval_s = min(settings.retry_max_s, settings.retry_s * 2.0 ** min(self._failures - 1, 30))
        self._due_at = self._read_at + interval_s
        self._wait()

    def _wait(self) -> None:
        self._clock.call_at(min(self._due_at, self._clock.monotonic() + CHECK_S), self._check)

    def _check(self) -> None:
        now = self._clock.monotonic()
        early = self.validator.lacks_key and now >= self._read_at + EARLY_S
        if early or now >= self._due_at:
            self._offload.run(read_keys, self._settings, done=self._read)
        else:
            self._wait()

    def _read(self, outcome: Outcome) -> None:
        self.validator.lacks_key = False
        if outcome.error is None:
            self.validator.keys, self._failures = outcome.value, 0
        else:
            self._failures += 1
            text = "keys of tokens cannot be read, the previous ones stay in use: %s"
            self._log(logging.ERROR, f"keys {self._settings.url}", text, outcome.error)
        self._plan()
