"""Prints why a command waits: errors that the SDK retries, when they last, and topics that do not exist."""

import logging
import time
from collections.abc import Callable

import click

REPORT_AFTER_S = 3.0  # of an error that is still retried
PASSED_S = 5.0  # without a retry, after which an error counts as a new one
ERRORS_MAX = 1000


class RetryReport(logging.Handler):
    """A handler of the SDK's log of retries; prints each error once when it was retried for `REPORT_AFTER_S` seconds.

    Arguments:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._errors: dict[str, tuple[float, float, bool]] = {}  # first and last retry, whether it was printed

    def emit(self, record: logging.LogRecord) -> None:
        """Count a retry."""
        text, now = record.getMessage(), self._clock()
        first, last, printed = self._errors.get(text, (now, now, False))
        if now - last > PASSED_S:
            first, printed = now, False
        if not printed and now - first >= REPORT_AFTER_S:
            printed = True
            click.echo(f"kafkalite: {text}; retrying", err=True)
        if len(self._errors) < ERRORS_MAX or text in self._errors:
            self._errors[text] = (first, now, printed)


class MissingTopicsReport(logging.Handler):
    """Prints the topics that a consumer reads and the cluster does not have."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning of the SDK."""
        click.echo(f"kafkalite: {record.getMessage()}", err=True)


def report_retries() -> None:
    """Print the errors that clients of the SDK retry in this process, and missing topics of consumers."""
    logging.getLogger("kafkalite_sdk.consumer.missing_topics").addHandler(MissingTopicsReport())
    logger = logging.getLogger("kafkalite_sdk.retries")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(RetryReport())
