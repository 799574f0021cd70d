"""Ends a job at SIGINT and SIGTERM, without a line of py4j.

1. PySpark's handler of SIGINT calls Java within the call to Java that it interrupts, which fails with a stack for each
   level. The one of this module only remembers the signal while a query runs, and the job stops the query.
2. What Spark reports about work that the end has interrupted is not logged.
3. Outside of a query, and at a second signal, the handler raises at once.
"""

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from pyspark_kafkalite.jobs.settings.job_file import JobFile
from pyspark_kafkalite.jobs.settings.job_settings import AUDIT, REPLAY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

INTERRUPTED, TERMINATED = 130, 143  # exit codes that a shell reports for a process ended by SIGINT, SIGTERM
NEXT_RUN = {AUDIT: "the next run compares everything again", REPLAY: "the next run sends all rows again"}
CHECK_S = 0.5


class Interruption:
    """The signals that end a job."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._waiting = False

    def install(self) -> None:
        """Handle the signals from now on, also after a session has installed its own handler of SIGINT."""
        if threading.current_thread() is threading.main_thread():  # no other thread receives signals
            signal.signal(signal.SIGINT, self._handle)
            signal.signal(signal.SIGTERM, self._handle)

    def wait(self, query: "StreamingQuery", silence: Callable[[], object]) -> None:
        """Wait for the end of a query. Raises KeyboardInterrupt at SIGINT, SystemExit at SIGTERM.

        Arguments:
            query: its exception is raised, too.
            silence: is called after a signal, before the query is stopped.
        """
        self._waiting = True
        try:
            while self._received is None and not query.awaitTermination(CHECK_S):
                pass
        finally:
            self._waiting = False
        if self._received is not None:
            silence()
            self._raise(self._received)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        logging.disable(logging.CRITICAL)
        again, self._received = self._received is not None, number
        if again or not self._waiting:
            self._raise(number)

    def _raise(self, number: int) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(TERMINATED)


def silence_java(spark: "SparkSession") -> None:
    """Discard what the JVM writes to standard error from now on.

    A thread of Spark that an interrupted micro-batch ends prints the stack of a StackOverflowError, because Spark
    searches the text of the Python error with a recursive expression.
    """
    java: Any = spark.sparkContext._jvm
    nothing = java.java.io.OutputStream.nullOutputStream()
    java.java.lang.System.setErr(java.java.io.PrintStream(nothing))


def interrupted_text(job: JobFile) -> str:
    """Return the line about a job that SIGINT has ended, with what the next run does."""
    return f"kafkalite: interrupted; {NEXT_RUN.get(job.type, 'the next run continues after the last commit')}"


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Handle signals while the context is open; then the handlers and the logging are those of before."""
    in_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if in_main else ()
    before, disabled = {each: signal.getsignal(each) for each in numbers}, logging.root.manager.disable
    handled = Interruption()
    handled.install()
    try:
        yield handled
    finally:
        logging.disable(disabled)
        for number, handler in before.items():
            signal.signal(number, handler)
