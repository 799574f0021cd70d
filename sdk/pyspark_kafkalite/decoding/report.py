"""Reports the schema, drift and dead letters that the commits of a table contain."""

import os
from collections import Counter
from typing import Any

from pyspark_kafkalite.decoding.drift import Drift
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.model import Commit, Table

SCHEMA, DRIFT, CAUSES = "schema", "drift", "causes"
"""Keys of `Commit.details`."""

FIELDS_MAX = 50


def table_drift(table: Table | str | os.PathLike[str]) -> Drift:
    """Return the drift of all commits of a table.

    Arguments:
        table: an open table, or the directory of a table of plain Parquet.

    Raises:
        TableError: there is no table, or it is damaged.
    """
    drift = Drift()
    for commit in _commits(table):
        if DRIFT in (commit.details or {}):
            drift.add(Drift.from_json((commit.details or {})[DRIFT]))
    return drift


def drift_report(table: Table | str | os.PathLike[str]) -> str:
    """Return a text about the fields of values that the declared schema lacks, about other types, and bad values.

    Arguments:
        table: an open table, or the directory of a table of plain Parquet.

    Raises:
        TableError: there is no table, or it is damaged.
    """
    drift = table_drift(table)
    causes: Counter[str] = Counter()
    for commit in _commits(table):
        causes.update((commit.details or {}).get(CAUSES, {}))
    lines = [f"VALUES EXAMINED {drift.values}"]
    lines += _section("FIELD NOT IN SCHEMA", "TYPE", drift.added)
    lines += [f"and {drift.others} values of other fields"] if drift.others else []
    lines += _section("FIELD OF ANOTHER TYPE", "DECLARED -> FOUND", drift.differing)
    lines += [f"BAD VALUES {causes.total()}", *(f"  {cause:<10} {count}" for cause, count in causes.most_common())]
    return "\n".join(lines)


def _section(title: str, types: str, counts: "Counter[Any]") -> list[str]:
    if not counts:
        return []
    lines = [f"{title:<40} {types:<30} VALUES"]
    for (path, *found), count in counts.most_common(FIELDS_MAX):
        lines.append(f"{path:<40} {' -> '.join(found):<30} {count}")
    if len(counts) > FIELDS_MAX:
        lines.append(f"and {len(counts) - FIELDS_MAX} other fields")
    return lines


def _commits(table: Table | str | os.PathLike[str]) -> list[Commit]:
    opened = ManifestTable(table, create=False) if isinstance(table, str | os.PathLike) else table
    return opened.commits()
