"""The errors of jobs, and the one line that a user reads about any other error.

Spark reports an error of a Python function as text: the traceback of the worker in the message of a Java exception.
"""

import re

from kafkalite.errors import KafkaError
from pyspark_kafkalite.errors import DataLossError, OptionError, SchemaError
from pyspark_kafkalite.tables.errors import TableError

NO_SPACE = "No space left on device"
NO_SPACE_STEP = "free space on the disk of the table, the checkpoint or spark.local.dir, and run the job again"
SPARKS = ("Py4JException", "Py4JJavaError", "PythonException", "StreamingQueryException")
"""Errors that contain the text of another error."""

PLAIN = (KafkaError, OptionError, SchemaError, TableError, DataLossError, ImportError)

_RAISED = re.compile(r"^\s*(?:pyspark\.errors\.\S+: )?((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)): (.*)$")
_JAVA_CAUSE = re.compile(r"^(?:: |Caused by: )?(?:\w+\.)+\w*(?:Error|Exception): (.*)$")
_CONDITION = re.compile(r"^\[[A-Z_.]+\] ")


class JobError(Exception):
    """A job cannot run, or has failed. The text is one line: object, reason, and what to do."""


def explain_error(error: BaseException) -> str | None:
    """Return an error as one line; None = it is not an error of a job but a defect, whose traceback is needed.

    Arguments:
        error: of a job, of the SDK, of a table, of the system or of Spark.
    """
    if isinstance(error, JobError):
        return str(error)
    if isinstance(error, OSError) and not isinstance(error, KafkaError):
        return _with_step(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    if isinstance(error, PLAIN):
        return _with_step(str(error))
    if type(error).__module__.partition(".")[0] in ("pyspark", "py4j"):
        return _with_step(root_cause(str(error)))
    return None


def root_cause(text: str) -> str:
    """Return the line of the innermost error in a message of Spark.

    Arguments:
        text: of the exception, with tracebacks of Python and Java.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [found for line in lines if (found := _RAISED.match(line)) and not found[1].endswith(SPARKS)]
    python = [found[2] for found in raised if not found[1].startswith(("java.", "org.", "scala."))]
    if python:
        return python[-1].split(" SQLSTATE:")[0]
    java = [found[1] for line in lines if (found := _JAVA_CAUSE.match(line))]
    chosen = java[-1] if java else lines[0] if lines else "the job has failed"
    return _CONDITION.sub("", chosen).split(" SQLSTATE:")[0]


def _with_step(text: str) -> str:
    line = " ".join(text.split())
    return f"{line}; {NO_SPACE_STEP}" if NO_SPACE in line else line
