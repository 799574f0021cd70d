"""Kills processes of a query whose sink has `exactlyOnce`, in given phases, in the order of `Kills`.

The source `killed-sink` is `kafkalite` with the option `kills`, the directory of the kills.
"""

import os
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

from tests.spark.killing import Kills

OPTION = "kills"
WORKER = (
    "task before its transaction",
    "task while it sends",
    "task before its transaction is detached",
    "task after its transaction is detached",
)
COMMIT = (
    "sink before the decision",
    "sink after the decision",
    "sink between the commits of two transactions",
    "sink before the batch is complete",
    "sink after its commit",
)


class KilledProducer(Producer[bytes, bytes]):
    """The producer of a task that is killed around the end of its work."""

    def detach_transaction(self, timeout: float | None = None) -> DetachedTransaction | None:
        kills = Kills.of_this_process()
        kills.reached(WORKER[2])
        found = super().detach_transaction(timeout)
        kills.reached(WORKER[3])
        return found


class KilledLog(DecisionLog):
    """The log of decisions of a driver that is killed around its appends."""

    def append(self, query: str, decision: Decision) -> int:
        kills = Kills.of_this_process()
        kills.reached(COMMIT[3] if decision.complete else COMMIT[0])
        offset = super().append(query, decision)
        if not decision.complete:
            kills.reached(COMMIT[1])
        return offset


class KilledCommitter(BatchCommitter):
    """The commits of a driver that is killed after the first one."""

    def _end(self, query: str, decision: Decision) -> None:
        super()._end(query, decision._replace(transactions=decision.transactions[:1]))
        Kills.of_this_process().reached(COMMIT[2])
        super()._end(query, decision)


class KilledWriter(ExactlyOnceWriter):
    """The writer of a query that is killed.

    Arguments:
        options, schema, decisions: as of `ExactlyOnceWriter`.
        kills: directory of the kills.
    """

    def __init__(self, options: SinkOptions, schema: StructType, decisions: str, kills: str) -> None:
        super().__init__(options, schema, decisions)
        self._kills = kills

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        os.environ["KAFKALITE_KILLS"] = self._kills
        with patch.object(attempts, "Producer", KilledProducer):
            return super().write(iterator)

    def _tables(self, iterator: Iterator[pyarrow.RecordBatch]) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
        kills = Kills.of_this_process()
        for number, each in enumerate(super()._tables(iterator)):
            if not number:
                kills.reached(WORKER[0])
            yield each
            kills.reached(WORKER[1])

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        os.environ["KAFKALITE_KILLS"] = self._kills
        super().commit(messages, batchId)
        Kills.of_this_process().reached(COMMIT[4])

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
        kills = given.pop(OPTION)
        options = sink_options(given)
        assert options.decisions is not None
        return KilledWriter(options, schema, options.decisions, kills)
