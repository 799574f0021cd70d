"""Writes the broker's log to standard error: one line per event, for people or as JSON.

A message may contain text of clients, so control characters are escaped and no client can forge a line. A traceback
keeps its lines in the plain format and is one string in JSON.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

PLAIN = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
LEVELS = ("debug", "info", "warning", "error")
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), 0x2028, 0x2029)}


def escape(text: str) -> str:
    """Return `text` with every control character escaped."""
    return text.translate(_CONTROL)


def time_text(record: logging.LogRecord) -> str:
    """Return the time of a record, in UTC with milliseconds (RFC 3339)."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class PlainFormatter(logging.Formatter):
    """`time LEVEL logger: message`."""

    def __init__(self) -> None:
        super().__init__(PLAIN)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return time_text(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escape(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger and message; `fields` of the record and exception, where it has them."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": time_text(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def set_up_logging(level: str = "info", *, as_json: bool = False, stream: TextIO | None = None) -> None:
    """Send all log records to `stream`. Replaces an earlier setup.

    Arguments:
        level: one of LEVELS; records below it are dropped.
        as_json: JSON instead of plain lines.
        stream: None = standard error.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else PlainFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
