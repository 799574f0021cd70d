"""The failed records of a producer that no user has seen: drain, flush or close raise them, hooks receive them."""

from collections import deque

from kafkalite_sdk._speedups.deliveries import ProducerBatch
from kafkalite_sdk.producer.reports import FailedRecords

BATCHES_MAX = 1000
"""Failed batches that are remembered; the counter covers all of them."""


class Failures:
    """Collects failed batches until their error is raised.

    Attributes:
        records_count: number of all records that have failed.
    """

    def __init__(self) -> None:
        self.records_count = 0
        self._batches: deque[ProducerBatch] = deque(maxlen=BATCHES_MAX)
        self._unreported: list[ProducerBatch] = []

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: ProducerBatch) -> None:
        """Remember a failed batch."""
        self.records_count += batch.records_count
        self._batches.append(batch)
        self._unreported.append(batch)

    def take_unreported(self) -> list[FailedRecords]:
        """Return the failures since the last call."""
        batches, self._unreported = self._unreported, []
        return [_described(batch) for batch in batches]

    def take_error(self) -> BaseException | None:
        """Return the error of the oldest records that no user has seen, and forget all failures; None = there are none.

        A note of the error has the number of its records.
        """
        unseen = [batch for batch in self._batches if batch.observed < batch.records_count]
        self._batches.clear()
        error = unseen[0].error_copy() if unseen else None
        if error is None:
            return None
        count = sum(batch.records_count - batch.observed for batch in unseen)
        error.add_note(f"raised for {count} record(s) whose awaitables were not awaited")
        return error


def _described(batch: ProducerBatch) -> FailedRecords:
    error = batch.error_copy()
    assert error is not None, "the batch has failed"
    return FailedRecords(batch.topic, batch.partition, batch.records_count, batch.records_count - batch.observed, error)
