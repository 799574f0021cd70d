"""Signals end a job after its query was stopped, and nothing is logged about what they have interrupted."""

import logging
import signal
from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark_kafkalite.jobs.interruption import TERMINATED, interruption


class Query:
    """A query that never ends by itself; each wait does something."""

    def __init__(self, *during: Callable[[], object]) -> None:
        self.during = iter(during)
        self.returned = 0

    def awaitTermination(self, _timeout: float) -> bool:
        next(self.during)()
        self.returned += 1
        return False


def waits(*during: Callable[[], object]) -> Any:
    return cast(Any, Query(*during))


@pytest.mark.parametrize(
    ("number", "error", "code"), [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, SystemExit, TERMINATED)]
)
def test_call_to_java_returns_before_the_signal_is_raised(
    number: signal.Signals, error: type[BaseException], code: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.getsignal(number)
    silenced: list[object] = []
    query = waits(lambda: None, lambda: signal.raise_signal(number))
    with pytest.raises(error) as raised, interruption() as signals:
        try:
            signals.wait(query, lambda: silenced.append(query))
        finally:
            logging.getLogger("py4j.clientserver").error("a stack")
    assert query.returned == 2 and silenced == [query] and getattr(raised.value, "code", None) == code
    assert caplog.records == []
    logging.getLogger("py4j.clientserver").error("another run")
    assert [each.getMessage() for each in caplog.records] == ["another run"]
    assert signal.getsignal(number) == before


def test_second_signal_and_one_outside_of_a_query_are_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interruption():
        signal.raise_signal(signal.SIGINT)
    query = waits(lambda: (signal.raise_signal(signal.SIGINT), signal.raise_signal(signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt), interruption() as signals:
        signals.wait(query, pytest.fail)
    assert query.returned == 0


def test_handler_of_the_session_is_replaced() -> None:
    with pytest.raises(KeyboardInterrupt), interruption() as signals:
        signal.signal(signal.SIGINT, lambda *_: pytest.fail("PySpark's handler calls Java"))
        signals.install()
        signal.raise_signal(signal.SIGINT)
