"""The decisions about micro-batches: their records in the compacted topic, and which of them are valid.

Pure. The key of a record is the id of the query. A batch is decided by one record, and complete with a second one:

1. Of several decisions about one batch the first one in the log is valid, and of a batch before the last one none is:
   two drivers of one query agree, whatever the order of their appends.
2. Compaction keeps the last record of a query; the topic delays it (`min.compaction.lag.ms`), so that a driver that has
   lost can append the valid record again.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from kafkalite_sdk import DetachedTransaction

from pyspark_kafkalite.errors import DecisionError

VERSION = 1


class Decision(NamedTuple):
    """A decision about a micro-batch: its transactions are committed, all others of the query are aborted.

    Attributes:
        batch: id of the micro-batch.
        transactions: of its tasks; empty in the record of a complete batch.
        complete: all are committed, and known to be.
        offset: of the record that has decided; -1 = it is not in the log yet.
    """

    batch: int
    transactions: tuple[DetachedTransaction, ...] = ()
    complete: bool = False
    offset: int = -1


class StoredDecision(NamedTuple):
    """A record of the topic."""

    offset: int
    key: bytes | None
    value: bytes | None


def encode(decision: Decision) -> bytes:
    """Return the value of the record of a decision."""
    document = {"version": VERSION, "batch": decision.batch, "complete": decision.complete}
    return json.dumps({**document, "transactions": [list(each) for each in decision.transactions]}).encode()


def decode(record: StoredDecision) -> Decision:
    """Return the decision of a record. Raises DecisionError: another program has written it, or a later version."""
    try:
        document = json.loads(record.value or b"")
        if document["version"] != VERSION:
            raise ValueError(f"its version is {document['version']!r}, expected {VERSION}")
        transactions = tuple(DetachedTransaction(*each) for each in document["transactions"])
        return Decision(int(document["batch"]), transactions, bool(document["complete"]), record.offset)
    except (KeyError, TypeError, ValueError) as error:
        raise DecisionError(f"the decision at offset {record.offset} cannot be read: {error!r}") from error


def of_query(records: Iterable[StoredDecision], query: str) -> list[Decision]:
    """Return the decisions about one query, in the order of the log. Raises DecisionError."""
    key = query.encode()
    return [decode(each) for each in records if each.key == key and each.value is not None]


def last_valid(decisions: Iterable[Decision]) -> Decision | None:
    """Return the valid decision about the last decided batch, None = no batch is decided.

    Arguments:
        decisions: about one query, in the order of the log.
    """
    last: Decision | None = None
    for each in decisions:
        if last is None or each.batch > last.batch:
            last = each
        elif each.complete and each.batch == last.batch:
            last = last._replace(complete=True)
    return last
