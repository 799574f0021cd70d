"""The report of a failed log directory is repeated until the tree has it, and not beyond the session."""

from typing import Any, cast

import pytest

from kafkalite.clock import Outcome
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import ConnectionLossError, SessionExpiredError
from kafkalite.coordination.znodes.controller import LOG_DIR_EVENT_PREFIX, decode_log_dir_event
from kafkalite.server.running.log_directory_reports import RETRY_S, LogDirectoryReports
from kafkalite.testing.virtual_clock import VirtualClock


class Session:
    """Fails to create nodes with these errors, one after another, then creates one."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.created: list[int] = []
        self.attempts = 0

    def create(self, path: str, data: bytes, then: Any, *, sequence: bool) -> None:
        assert path == LOG_DIR_EVENT_PREFIX and sequence
        self.attempts += 1
        if self.errors:
            then(Outcome(error=self.errors.pop(0)))
            return
        self.created.append(decode_log_dir_event(path, data))
        then(Outcome())


def reports(session: Session) -> tuple[LogDirectoryReports, VirtualClock]:
    clock = VirtualClock()
    return LogDirectoryReports(cast(Coordination, session), clock, 7), clock


def test_report_is_repeated_after_a_lost_connection() -> None:
    session = Session(ConnectionLossError(), ConnectionLossError())
    reported, clock = reports(session)
    reported.report()
    clock.advance(1_000 * RETRY_S * 3)
    assert session.created == [7] and session.attempts == 3 and clock.timers == 0


def test_report_ends_with_the_session() -> None:
    session = Session(SessionExpiredError())
    reported, clock = reports(session)
    reported.report()
    assert session.created == [] and clock.timers == 0


def test_closed_broker_reports_nothing() -> None:
    session = Session(ConnectionLossError())
    reported, clock = reports(session)
    reported.report()
    reported.close()
    clock.advance(1_000 * RETRY_S * 3)
    reported.report()
    assert session.attempts == 1 and clock.timers == 0


def test_other_errors_are_raised() -> None:
    reported, _clock = reports(Session(RuntimeError("a defect")))
    with pytest.raises(RuntimeError, match="a defect"):
        reported.report()
