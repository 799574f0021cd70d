"""Progress as metrics in the text format of Prometheus: in a file here, by HTTP in `endpoint`.

Names begin with `kafkalite_pipeline_`; the label `query` is the name of the query.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from kafkalite.metrics import Counter, Labels, Registry
from pyspark_kafkalite.progress.model import BatchProgress

PREFIX = "kafkalite_pipeline_"


class PipelineMetrics:
    """The metrics of the queries of one process."""

    def __init__(self) -> None:
        self._registry = Registry()

    def batch(self, progress: BatchProgress) -> None:
        """Count a micro-batch."""
        query = progress.name
        self._add("batches_total", "Micro-batches.", 1, query=query)
        self._add("rows_total", "Records.", progress.rows, query=query)
        self._add("bytes_total", "Bytes, written by ingest, else read.", progress.bytes or 0, query=query)
        self._add("files_total", "Files that ingest has written.", progress.files or 0, query=query)
        self._add("bad_rows_total", "Records that could not be decoded.", progress.bad_rows, query=query)
        for phase, duration_ms in progress.phases_ms.items():
            self._add("phase_ms_total", "Milliseconds by phase.", round(duration_ms), query=query, phase=phase)
        self._set("batch_seconds", "Duration of the last micro-batch.", progress.duration_ms / 1000, query=query)
        if progress.lag_seconds is not None:
            self._set("lag_seconds", "Age of the oldest record not read.", progress.lag_seconds, query=query)
        for (topic, number), each in progress.partitions.items():
            labels = {"query": query, "topic": topic, "partition": str(number)}
            self._set("offset", "The next offset to read.", each.end, **labels)
            if each.lag is not None:
                self._set("lag_records", "Offsets that were not read.", each.lag, **labels)

    def ended(self, query: str, error: str | None) -> None:
        """Count a query that has ended."""
        self._add("queries_ended_total", "Queries that have ended.", 1, query=query)
        self._add("queries_failed_total", "Queries that have ended with an error.", int(error is not None), query=query)

    def text(self) -> str:
        """Return all metrics in the text format."""
        return "".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for family in self._registry.walk():
            kind = "counter" if family.kind is Counter else "gauge"
            yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {kind}\n"
            for labels, metric in family.members.items():
                yield f"{family.name}{_labels_text(labels)} {metric.value:.15g}\n"

    def _add(self, name: str, help: str, amount: int, **labels: str) -> None:
        self._registry.counter(PREFIX + name, help, **labels).add(amount)

    def _set(self, name: str, help: str, value: float, **labels: str) -> None:
        self._registry.gauge(PREFIX + name, help, None, **labels).set(value)


def _labels_text(labels: Labels) -> str:
    escaped = {ord("\\"): r"\\", ord('"'): r"\"", ord("\n"): r"\n"}
    return "{" + ",".join(f'{name}="{value.translate(escaped)}"' for name, value in labels) + "}"


class MetricsFile:
    """Keeps a file of metrics, for the textfile collector of Prometheus' node exporter.

    Arguments:
        path: of the file, usually `NAME.prom`; it is replaced atomically.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._metrics = PipelineMetrics()
        self._write()

    def batch(self, progress: BatchProgress) -> None:
        """Count a micro-batch and write the file."""
        self._metrics.batch(progress)
        self._write()

    def ended(self, query: str, error: str | None) -> None:
        """Count a query that has ended, and write the file."""
        self._metrics.ended(query, error)
        self._write()

    def close(self) -> None:
        """Leave the file: its last values stay visible."""

    def _write(self) -> None:
        written = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        written.write_text(self._metrics.text(), encoding="utf-8")
        os.replace(written, self._path)
