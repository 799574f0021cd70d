"""Logs at most one line per minute and site: lines that a client can trigger must not fill a disk.

Sites should not depend on bytes of clients. Where some do, memory and lines are bounded, too: while `SITES_MAX` sites
have logged within the last minute, all further ones are a single site.
"""

import logging

from kafkalite.clock import Clock

PERIOD_S = 60.0
SITES_MAX = 1_000
OTHERS = "others"


class RateLimitedLog:
    """Wraps a logger; `site` identifies the source of a line. The next line has the number of suppressed ones."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._sites: dict[str, tuple[float, int]] = {}  # the last line, and the silent ones since; oldest line first

    def __call__(self, level: int, site: str, text: str, *args: object, exc_info: BaseException | None = None) -> None:
        """Log `text % args`, unless `site` has logged within the last minute.

        Arguments:
            level: of the logging module.
            site: the source of the line.
            text: a format; strings of clients belong into args as `%r`.
            args: of the format.
            exc_info: an exception whose traceback is logged.
        """
        now = self._clock.monotonic()
        site = self._known_or_new(site, now)
        spoke, silent = self._sites.get(site, (-PERIOD_S, 0))
        if now - spoke < PERIOD_S:
            self._sites[site] = (spoke, silent + 1)
            return
        self._sites.pop(site, None)  # it becomes the newest
        self._sites[site] = (now, 0)
        suffix = f" ({silent} more like this since the last line)" if silent else ""
        self._logger.log(level, text + suffix, *args, exc_info=exc_info)

    def _known_or_new(self, site: str, now: float) -> str:
        """Return the site that a line is counted for: `OTHERS` if there is no space for a new one."""
        if site in self._sites or len(self._sites) < SITES_MAX:
            return site
        oldest = next(iter(self._sites))
        if now - self._sites[oldest][0] < PERIOD_S:
            return OTHERS
        del self._sites[oldest]
        return site

    def raised(self, callback: object, error: BaseException) -> None:
        """Log the exception of a callback of a timer or a job, which has no caller that could handle it."""
        self(logging.ERROR, f"raised {site_of(error)}", "%r raised", callback, exc_info=error)


def site_of(error: BaseException) -> str:
    """Return the exception's type and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "nowhere"
    return f"{type(error).__name__} at {where}"
