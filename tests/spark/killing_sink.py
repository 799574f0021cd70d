"""Kills processes of a query whose sink has `exactlyOnce`, in given phases, in the order of `SinkKills`.

The source `killed-sink` is `kafkalite` with the option `kills`, the directory of the kills.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pyarrow
from kafkalite_sdk import DetachedTransaction
from kafkalite_sdk.blocking import Producer
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark_kafkalite import DefaultSource
from pyspark_kafkalite.exactly_once import attempts
from pyspark_kafkalite.exactly_once.committer import BatchCommitter
from pyspark_kafkalite.exactly_once.decision_log import DecisionLog
from pyspark_kafkalite.exactly_once.decisions import Decision
from pyspark_kafkalite.sink import ExactlyOnceWriter
from pyspark_kafkalite.sink_options import SinkOptions, sink_options

from tests.spark.sink_kills import COMMIT, TASK, SinkKills

OPTION, DRIVER_OPTION = "kills", "driver"
"""Options of the sink: the directory of the kills, and the process id of the driver."""


class KilledProducer(Producer[bytes, bytes]):
    """The producer of a task that is killed around the end of its work."""

    def flush(self, timeout: float | None = None) -> None:
        SinkKills.of_this_process().reached(TASK[2])
        super().flush(timeout)

    def detach_transaction(self, timeout: float | None = None) -> DetachedTransaction | None:
        kills = SinkKills.of_this_process()
        kills.reached(TASK[3])
        found = super().detach_transaction(timeout)
        kills.detached()
        kills.reached(TASK[4])
        return found


class KilledLog(DecisionLog):
    """The log of decisions of a driver that is killed around its appends."""

    def append(self, query: str, decision: Decision) -> int:
        kills = SinkKills.of_this_process()
        kills.reached(COMMIT[3] if decision.complete else COMMIT[0])
        offset = super().append(query, decision)
        if not decision.complete:
            kills.reached(COMMIT[1])
        return offset


class KilledCommitter(BatchCommitter):
    """The commits of a driver that is killed after the first one."""

    def _end(self, query: str, decision: Decision) -> None:
        super()._end(query, decision._replace(transactions=decision.transactions[:1]))
        SinkKills.of_this_process().reached(COMMIT[2])
        super()._end(query, decision)


class KilledWriter(ExactlyOnceWriter):
    """The writer of a query that is killed.

    Arguments:
        options, schema, decisions: as of `ExactlyOnceWriter`.
        kills: directory of the kills.
        driver: its process id.
    """

    def __init__(self, options: SinkOptions, schema: StructType, decisions: str, kills: str, driver: str) -> None:
        super().__init__(options, schema, decisions)
        self._kills = kills
        self._driver = driver

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        SinkKills.join(self._kills, self._driver).begin_task()
        with patch.object(attempts, "Producer", KilledProducer):
            return super().write(iterator)

    def _tables(self, iterator: Iterator[pyarrow.RecordBatch]) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
        kills = SinkKills.of_this_process()
        for number, each in enumerate(super()._tables(iterator)):
            if not number:
                kills.reached(TASK[0])
            yield each
            kills.reached(TASK[1])

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        SinkKills.join(self._kills, self._driver)
        super().commit(messages, batchId)
        SinkKills.of_this_process().reached(COMMIT[4])

    def _log(self) -> DecisionLog:
        return KilledLog(self._options.shared, self._decisions)

    def _committer(self) -> BatchCommitter:
        return KilledCommitter(self._options, self._log())


class KilledSource(DefaultSource):
    """The format whose sink is killed."""

    @classmethod
    def name(cls) -> str:
        return "killed-sink"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KilledWriter:
        given: dict[str, Any] = {name.lower(): value for name, value in self.options.items()}
        kills, driver = given.pop(OPTION), given.pop(DRIVER_OPTION)
        options = sink_options(given)
        assert options.decisions is not None
        return KilledWriter(options, schema, options.decisions, kills, driver)
