"""Facts about micro-batches that ingest knows and Spark does not, for the listener in the same process.

Spark counts plan rows there, and has no metrics of Python sources.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

KEPT = 100


class Facts(NamedTuple):
    """One micro-batch.

    Attributes:
        rows: that it has written.
        bytes: of the files that it has written.
        files: their number.
        bad_rows: that could not be decoded.
        phases_ms: durations by phase; those of tasks are summed.
    """

    rows: int
    bytes: int
    files: int
    bad_rows: int = 0
    phases_ms: Mapping[str, float] = {}


_lock = threading.Lock()
_facts: OrderedDict[tuple[str, int], Facts] = OrderedDict()


def record(query_id: str, batch_id: int, facts: Facts) -> None:
    """Keep the facts of a micro-batch; those of the last 100 are kept."""
    with _lock:
        _facts[query_id, batch_id] = facts
        while len(_facts) > KEPT:
            _facts.popitem(last=False)


def recorded_facts(query_id: str, batch_id: int) -> Facts | None:
    """Return the facts of a micro-batch; None = there are none."""
    with _lock:
        return _facts.get((query_id, batch_id))
