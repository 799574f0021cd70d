"""Writes progress as JSON lines."""

import json
import os
from datetime import UTC, datetime
from typing import Any

from pyspark_kafkalite.progress.model import BatchProgress


class JsonLines:
    """Appends one line for each micro-batch and one for each query that ends.

    Arguments:
        path: of the file; it is created.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._append("")

    def batch(self, progress: BatchProgress) -> None:
        """Append the line of a micro-batch."""
        self._append(_line(batch_line(progress)))

    def ended(self, query: str, error: str | None) -> None:
        """Append the line of a query that has ended."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._append(_line({"event": "ended", "time": time, "query": query, "error": error}))

    def close(self) -> None:
        """Do nothing: the file is not kept open."""

    def _append(self, text: str) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(text)


def _line(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False) + "\n"


def batch_line(progress: BatchProgress) -> dict[str, Any]:
    """Return the JSON object of a micro-batch."""
    partitions: dict[str, dict[str, dict[str, int | None]]] = {}
    for (topic, number), each in sorted(progress.partitions.items()):
        fields = {"start": each.start, "end": each.end, "latest": each.latest}
        partitions.setdefault(topic, {})[str(number)] = fields
    return {
        "event": "batch",
        "time": progress.time,
        "query": progress.name,
        "query_id": progress.query_id,
        "run_id": progress.run_id,
        "batch": progress.batch_id,
        "duration_ms": progress.duration_ms,
        "rows": progress.rows,
        "bytes": progress.bytes,
        "files": progress.files,
        "bad_rows": progress.bad_rows,
        "lag": progress.lag,
        "lag_seconds": progress.lag_seconds,
        "phases_ms": {phase: round(duration, 1) for phase, duration in progress.phases_ms.items()},
        "partitions": partitions,
    }
