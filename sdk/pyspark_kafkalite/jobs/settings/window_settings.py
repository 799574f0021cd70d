"""The section [window] of a job file. Pure, without PySpark."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark_kafkalite.jobs.settings.sections import Section

KEYS = ("size", "slide", "watermark", "event_time", "schema", "by", "aggregates", "mode")
APPEND, UPDATE = "append", "update"
NAME = re.compile(r"[A-Za-z_]\w*")


class WindowSettings(NamedTuple):
    """The windows of a job.

    Attributes:
        size, slide: durations of Spark; `slide` None = windows do not overlap.
        watermark: how late a record may be.
        event_time: an SQL expression of type timestamp.
        schema: of values that are JSON, as text of Spark's DDL; None = values are not parsed.
        by: SQL expressions that divide a window, by the name of their column.
        aggregates: SQL expressions, by the name of their column.
        mode: "append" = a window is written once, when the watermark has passed it; "update" = after each change.
    """

    size: str
    slide: str | None
    watermark: str
    event_time: str
    schema: str | None
    by: Mapping[str, str]
    aggregates: Mapping[str, str]
    mode: str


def window_settings(origin: str, fields: Mapping[str, Any]) -> WindowSettings:
    """Check the section [window]; Spark checks the expressions.

    Arguments:
        origin: the file, for errors.
        fields: of the section.

    Raises:
        JobError: a key or a value is not valid.
    """
    section = Section(origin, "window", fields, KEYS)
    slide = section.duration("slide", None) if section.has("slide") else None
    aggregates = section.named_texts("aggregates") or {"rows": "count(*)"}
    by = section.named_texts("by")
    for key, names in (("by", by), ("aggregates", aggregates)):
        for name in names:
            if not NAME.fullmatch(name):
                raise section.error(key, f"{name!r} is not a name of a column: letters, digits and _")
            if name in ("window_start", "window_end") or (key == "aggregates" and name in by):
                raise section.error(key, f"{name!r} is the name of another column")
    return WindowSettings(
        size=section.duration("size", None),
        slide=slide,
        watermark=section.duration("watermark", "10 minutes"),
        event_time=section.text("event_time", "timestamp") or "timestamp",
        schema=section.text("schema"),
        by=by,
        aggregates=aggregates,
        mode=section.choice("mode", APPEND, (APPEND, UPDATE)),
    )
