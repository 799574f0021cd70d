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
    """Wraps a logger; `site` identifies the source of a line. The next line has the number of suppressed ones.

    A site that is forgotten for a new one logs its number of suppressed lines then.
    """

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        # Time and level of the last line, number of suppressed lines since; the site with the oldest line first.
        self._sites: dict[str, tuple[float, int, int]] = {}

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
        logged_at, level_before, suppressed = self._sites.get(site, (-PERIOD_S, level, 0))
        if now - logged_at < PERIOD_S:
            self._sites[site] = (logged_at, level_before, suppressed + 1)
            return
        self._sites.pop(site, None)  # it becomes the newest
        self._sites[site] = (now, level, 0)
        suffix = f" ({suppressed} more like this since the last line)" if suppressed else ""
        self._logger.log(level, text + suffix, *args, exc_info=exc_info)

    def _known_or_new(self, site: str, now: float) -> str:
        """Return the site that a line is counted for: `OTHERS` if there is no space for a new one."""
        if site in self._sites or len(self._sites) < SITES_MAX:
            return site
        oldest = next(iter(self._sites))
        if now - self._sites[oldest][0] < PERIOD_S:
            return OTHERS
        _logged_at, level, suppressed = self._sites.pop(oldest)
        if suppressed:  # no later line of this site could report them
            self._logger.log(level, "%d more lines of %r since the last line", suppressed, oldest)
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
