"""Errors that a client retries are printed when they last."""

import logging

import pytest

from kafkalite.cli.retry_report import PASSED_S, REPORT_AFTER_S, RetryReport


class Retries:
    """Retries of requests at times that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self._report = RetryReport(lambda: self.now)

    def retry(self, text: str) -> None:
        self._report.emit(logging.makeLogRecord({"msg": "%s", "args": (text,)}))


def test_an_error_that_lasts_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    retries = Retries()
    for _ in range(20):
        retries.retry("g: NOT_COORDINATOR")
        retries.now += REPORT_AFTER_S / 2
    assert capsys.readouterr().err == "kafkalite: g: NOT_COORDINATOR; retrying\n"


def test_an_error_that_passes_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    retries = Retries()
    retries.retry("t-0: LEADER_NOT_AVAILABLE")
    retries.now += PASSED_S + 1
    retries.retry("t-0: LEADER_NOT_AVAILABLE")
    assert capsys.readouterr().err == ""
