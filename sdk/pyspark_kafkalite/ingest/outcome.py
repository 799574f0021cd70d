"""The files that the workers of a batch have written, as the batch that the table commits."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet

from pyspark_kafkalite.decoding.drift import Drift
from pyspark_kafkalite.decoding.errors import BudgetExceededError
from pyspark_kafkalite.decoding.options import Decoding
from pyspark_kafkalite.decoding.report import CAUSES, DRIFT
from pyspark_kafkalite.decoding.schemas import merge_schemas
from pyspark_kafkalite.ingest.dead_letters import path_of
from pyspark_kafkalite.ingest.worker import Written
from pyspark_kafkalite.tables.columns import RAW_SCHEMA
from pyspark_kafkalite.tables.ddl import ddl_text, parse_ddl
from pyspark_kafkalite.tables.model import Batch, DataFile, Table

EXAMPLES = 3


def known_schema(table: Table) -> str | None:
    """Return the schema of a table as text of DDL; None = it is empty."""
    if table.last_commit() is None:
        return None
    return table.schema_text() or ddl_text(RAW_SCHEMA)  # of commits before schemas were recorded


def batch_of(query_id: str, batch_id: int, written: Sequence[Written], decoding: Decoding, known: str | None) -> Batch:
    """Return the batch of what workers have written.

    Arguments:
        query_id, batch_id: of the micro-batch.
        written: by its workers.
        decoding: how records were decoded.
        known: schema of the table, see `known_schema`.

    Raises:
        SchemaMisfitError: the files of two workers have different types.
    """
    causes: Counter[str] = Counter()
    drift = Drift()
    schema = known
    for each in written:
        causes.update(each.causes or {})
        if each.drift is not None:
            drift.add(Drift.from_json(dict(each.drift)))
        if each.schema is not None and each.schema != schema:
            added = parse_ddl(each.schema)
            schema = ddl_text(
                added if schema is None else merge_schemas(parse_ddl(schema), added, "a file of the batch")
            )
    details: dict[str, Any] = {} if not causes else {CAUSES: dict(causes)}
    if drift.values:
        details[DRIFT] = drift.to_json()
    letters = tuple(each for one in written for each in one.dead_letters)
    return Batch(
        query_id,
        batch_id,
        tuple(each for one in written for each in one.ranges),
        tuple(each for one in written for each in one.files),
        dead_letters=letters,
        dead_rows=sum(each.rows for each in letters),
        schema=schema,
        details=details or None,
    )


def check_budget(batch: Batch, decoding: Decoding, attempts: str) -> None:
    """Reject a batch with too many bad values.

    Arguments:
        batch: not committed.
        decoding: its budget.
        attempts: directory of the attempts, for examples.

    Raises:
        BudgetExceededError: it has more than the budget.
    """
    rows = sum(each.rows for each in batch.ranges)
    allowed = decoding.bad_rows_max(rows)
    if batch.dead_rows <= allowed:
        return
    raise BudgetExceededError(
        f"batch {batch.batch_id}: {batch.dead_rows} of {rows} records cannot be decoded, the budget "
        f"{decoding.budget!r} permits {allowed}; nothing was committed. First ones: "
        f"{'; '.join(_examples(batch.dead_letters, attempts))}. Correct the schema, or choose a larger budget"
    )


def _examples(files: Sequence[DataFile], attempts: str) -> list[str]:
    found: list[str] = []
    columns = ["_topic", "_partition", "_offset", "part", "cause", "detail"]
    for file in files:
        with pyarrow.parquet.ParquetFile(path_of(attempts, file.name)) as opened:
            first = next(opened.iter_batches(EXAMPLES, columns=columns))
        for row in first.to_pylist():
            name = f"{row['_topic']}-{row['_partition']} offset {row['_offset']}"
            found.append(f"{name}: {row['part']}: {row['cause']}: {row['detail']}")
        if len(found) >= EXAMPLES:
            break
    return found[:EXAMPLES]
