"""The section [progress] of a job file, and the listener that it describes."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafkalite.jobs.run_options import RunOptions
from pyspark_kafkalite.jobs.settings.sections import Section

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_kafkalite.progress import BatchProgress, Output

PORT_MAX = 65_535
END_TIMEOUT_S = 10.0


class ProgressSettings(NamedTuple):
    """What shows the progress of a job.

    Attributes:
        group: consumer group that receives the offsets, None = none.
        json: file that receives a line per micro-batch, None = none.
        metrics: file for Prometheus, None = none.
        port: of the metrics page on this machine, None = none; 0 = a free one.
    """

    group: str | None = None
    json: str | None = None
    metrics: str | None = None
    port: int | None = None


def progress_settings(origin: str, fields: Mapping[str, Any], directory: Path) -> ProgressSettings:
    """Check the section [progress].

    Arguments:
        origin: the file, for errors.
        fields: of the section.
        directory: of relative paths.

    Raises:
        JobError: a key or a value is not valid.
    """
    section = Section(origin, "progress", fields, ProgressSettings._fields)
    json, metrics = section.text("json"), section.text("metrics")
    return ProgressSettings(
        section.text("group"),
        None if json is None else str(directory / json),
        None if metrics is None else str(directory / metrics),
        section.integer("port", 0, least=0, most=PORT_MAX) if section.has("port") else None,
    )


@contextmanager
def shown(
    spark: "SparkSession",
    settings: ProgressSettings,
    options: RunOptions,
    name: str,
    client: Mapping[str, Any],
    report: Callable[[str], Any],
) -> Iterator[Callable[[], object]]:
    """Show the progress of a query while the context is open; it yields a function that waits for the query's end.

    Arguments:
        spark: the session.
        settings, options: what shows it.
        name: of the query.
        client: `SourceOptions.client`.
        report: is called with the address of the metrics page.

    Raises:
        OSError: a file cannot be written, or the port is in use.
    """
    from pyspark_kafkalite.progress import (
        HtmlReport,
        JsonLines,
        MetricsEndpoint,
        MetricsFile,
        ProgressBar,
        ProgressGroup,
        ProgressListener,
    )

    outputs: list[Output] = [ProgressBar()] if options.bar else []
    if options.report is not None:
        outputs.append(HtmlReport(options.report))
    if settings.json is not None:
        outputs.append(JsonLines(settings.json))
    if settings.metrics is not None:
        outputs.append(MetricsFile(settings.metrics))
    if settings.port is not None:
        endpoint = MetricsEndpoint(port=settings.port)
        report(f"metrics: http://127.0.0.1:{endpoint.port}/metrics")
        outputs.append(endpoint)
    group = None if settings.group is None else ProgressGroup(settings.group, client)
    if not outputs and group is None:
        yield lambda: None
        return
    end = _End()
    listener = ProgressListener(*outputs, end, group=group, name=name)
    spark.streams.addListener(listener)
    try:
        yield lambda: end.received.wait(END_TIMEOUT_S)
    finally:
        spark.streams.removeListener(listener)
        listener.close()


class _End:
    """The last output: Spark reports the end of a query some time later, in another thread.

    Attributes:
        received: is set when the other outputs have received the end.
    """

    def __init__(self) -> None:
        self.received = threading.Event()

    def batch(self, progress: "BatchProgress") -> None:
        """Do nothing."""

    def ended(self, query: str, error: str | None) -> None:
        """The other outputs have shown it."""
        self.received.set()

    def close(self) -> None:
        """Do nothing."""
