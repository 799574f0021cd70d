"""Reads the committed files of a table with pyarrow."""

import os
from typing import TYPE_CHECKING

from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.model import Table

if TYPE_CHECKING:
    import pyarrow.dataset


def read(table: Table | str | os.PathLike[str]) -> "pyarrow.dataset.Dataset":
    """Return the rows of all commits of a table, each once, also of commits that are being published.

        read("/data/orders").to_table(columns=["key", "_offset"])

    A plain reader of the directory sees the same files, the last ones a moment later.

    Arguments:
        table: an open table, or the directory of a table of plain Parquet.

    Raises:
        TableError: there is no table, or it is damaged.
    """
    from pyspark_kafkalite.decoding.ddl import parse_ddl

    source = ManifestTable(table, create=False) if isinstance(table, str | os.PathLike) else table
    return _dataset(source.files(), None if (text := source.schema_text()) is None else parse_ddl(text))


def read_dead_letters(table: Table | str | os.PathLike[str]) -> "pyarrow.dataset.Dataset":
    """Return the records of a table that could not be decoded, each once, see DEAD_LETTER_SCHEMA.

    Arguments:
        table: an open table, or the directory of a table of plain Parquet.

    Raises:
        TableError: there is no table, or it is damaged.
    """
    from pyspark_kafkalite.decoding.columns import DEAD_LETTER_SCHEMA

    source = ManifestTable(table, create=False) if isinstance(table, str | os.PathLike) else table
    return _dataset(source.dead_letter_files(), DEAD_LETTER_SCHEMA)


def _dataset(files: list[str], schema: "pyarrow.Schema | None") -> "pyarrow.dataset.Dataset":
    from pyarrow import dataset

    return dataset.dataset(files, schema, format="parquet", ignore_prefixes=[])  # files in `_attempts`, too
