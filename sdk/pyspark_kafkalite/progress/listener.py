"""The listener that Spark calls: it passes what queries report to the outputs."""

import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_kafkalite.progress.facts import recorded_facts
from pyspark_kafkalite.progress.group import ProgressGroup
from pyspark_kafkalite.progress.model import Output, batch_progress

LOGGER = logging.getLogger("pyspark_kafkalite")


class ProgressListener(StreamingQueryListener):
    """Shows the progress of queries.

        spark.streams.addListener(ProgressListener(JsonLines("progress.jsonl"), name="orders"))

    Arguments:
        outputs: receive each micro-batch.
        group: receives the offsets of each micro-batch, and knows the lag in seconds. Pass a name, too: queries need
            groups of their own.
        name: of the query (`queryName`, `ingest(name=...)`) that is shown; None = all of the session.
    """

    def __init__(self, *outputs: Output, group: ProgressGroup | None = None, name: str | None = None) -> None:
        self._outputs = outputs
        self._group = group
        self._name = name
        self._names: dict[str, str] = {}  # run id -> name of the query, else its id

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Remember the name of a query."""
        if self._name in (None, event.name):
            self._names[str(event.runId)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Show a micro-batch."""
        spark: Any = event.progress
        if self._name not in (None, spark["name"]):
            return
        progress = batch_progress(spark, recorded_facts(str(spark["id"]), spark["batchId"]))
        if self._group is not None:
            self._group.commit(progress.ends)
            progress = progress._replace(lag_seconds=self._group.lag_seconds())
        self._show(lambda output: output.batch(progress))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Show that a query has ended."""
        name = self._names.pop(str(event.runId), None)
        if name is not None:
            self._show(lambda output: output.ended(name, event.exception))

    def close(self) -> None:
        """Close the outputs. Remove the listener before, after the queries have ended."""
        for output in self._outputs:
            output.close()

    def _show(self, call: Callable[[Output], None]) -> None:
        for output in self._outputs:
            try:
                call(output)
            except Exception:
                LOGGER.exception("progress is not shown by %s", type(output).__name__)
