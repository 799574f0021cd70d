"""Retries operations while a broker restarts or the leader of a partition changes."""

import asyncio
import math

import click

from kafkalite.errors import KafkaError

RETRY_S = 120.0  # Kafka's default of delivery.timeout.ms
PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 1.0


class Retry:
    """Pauses between the attempts at one operation, up to a time limit.

    The first failure is reported on standard error. The pause doubles from `PAUSE_MIN_S` to `PAUSE_MAX_S`.

    Args:
        limit_s: seconds from the first failure after which there is no further attempt.
    """

    def __init__(self, limit_s: float = RETRY_S) -> None:
        self._limit_s = limit_s
        self._ends_at = math.inf
        self._pause_s = PAUSE_MIN_S

    async def pause(self, error: KafkaError) -> None:
        """Wait before the next attempt. Raises `error` when it is not retriable or the time is over."""
        now = asyncio.get_running_loop().time()
        if not error.retriable or now >= self._ends_at:
            raise error
        if self._ends_at == math.inf:
            self._ends_at = now + self._limit_s
            click.echo(f"kafkalite: {error}; retrying for {self._limit_s:.0f} s", err=True)
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def succeeded(self) -> None:
        """The operation succeeded: the next failure is the first one again."""
        self._ends_at = math.inf
        self._pause_s = PAUSE_MIN_S
