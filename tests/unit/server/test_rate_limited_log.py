"""Lines that clients can trigger: one per minute and site, and a bounded number of sites."""

import logging

import pytest

from kafkalite.rate_limited_log import OTHERS, PERIOD_S, SITES_MAX, RateLimitedLog
from kafkalite.testing.virtual_clock import VirtualClock

LOGGER = logging.getLogger("test.rate_limited_log")


def test_a_site_logs_once_a_minute_with_the_number_of_suppressed_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    log = RateLimitedLog(LOGGER, clock)
    for _ in range(3):
        log(logging.WARNING, "site", "text")
    clock.advance(PERIOD_S * 1000)
    log(logging.WARNING, "site", "text")
    assert caplog.messages == ["text", "text (2 more like this since the last line)"]


def test_sites_that_a_client_chooses_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    log = RateLimitedLog(LOGGER, clock)
    for number in range(3 * SITES_MAX):
        log(logging.WARNING, f"site {number}", "text")
    assert len(caplog.messages) == SITES_MAX + 1 and len(log._sites) == SITES_MAX + 1
    clock.advance(PERIOD_S * 1000)
    caplog.clear()
    log(logging.WARNING, "new site", "text")
    log(logging.WARNING, f"site {SITES_MAX - 1}", "text")
    log(logging.WARNING, OTHERS, "text")
    assert caplog.messages == ["text", "text", f"text ({2 * SITES_MAX - 1} more like this since the last line)"]
    assert len(log._sites) <= SITES_MAX + 1


def test_a_forgotten_site_logs_the_number_of_its_suppressed_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    log = RateLimitedLog(LOGGER, clock)
    caplog.set_level(logging.INFO)
    for number in range(SITES_MAX):
        for _ in range(3 if number == 0 else 1):
            log(logging.ERROR, f"site {number}", "text")
    clock.advance(PERIOD_S * 1000)
    caplog.clear()
    log(logging.INFO, "new site", "text")
    log(logging.INFO, "newer site", "text")
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.ERROR, "2 more lines of 'site 0' since the last line"),
        (logging.INFO, "text"),
        (logging.INFO, "text"),
    ]
