"""A log line at most once a minute per place: what a client can trigger must not fill a disk."""

import logging

from kafkalite.clock import Clock

PERIOD_S = 60.0


class RateLimitedLog:
    """Wraps a logger; `site` names the place that speaks, and how often it was silent is told with its next line."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._sites: dict[str, tuple[float, int]] = {}

    def __call__(self, level: int, site: str, text: str, *args: object, exc_info: BaseException | None = None) -> None:
        """Log `text % args` unless `site` spoke within the last minute. Client strings belong into args as `%r`."""
        now = self._clock.monotonic()
        spoke, silent = self._sites.get(site, (-PERIOD_S, 0))
        if now - spoke < PERIOD_S:
            self._sites[site] = (spoke, silent + 1)
            return
        self._sites[site] = (now, 0)
        suffix = f" ({silent} more like this since the last line)" if silent else ""
        self._logger.log(level, text + suffix, *args, exc_info=exc_info)

    def raised(self, callback: object, error: BaseException) -> None:
        """Report what a callback of a timer or a job raised, which nobody above it can handle."""
        self(logging.ERROR, f"raised {site_of(error)}", "%r raised", callback, exc_info=error)


def site_of(error: BaseException) -> str:
    """Which line raised it, and what."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "nowhere"
    return f"{type(error).__name__} at {where}"
