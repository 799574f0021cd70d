"""The options of a run of a job, beyond its file."""

from typing import NamedTuple


class RunOptions(NamedTuple):
    """Options of one run.

    Attributes:
        resume_from_table: a new checkpoint begins at the end of the table.
        allow_gaps: offsets that the log has lost are recorded as missing.
        report: file of an HTML page with charts, None = none.
        bar: show the progress on standard error.
    """

    resume_from_table: bool = False
    allow_gaps: bool = False
    report: str | None = None
    bar: bool = False
