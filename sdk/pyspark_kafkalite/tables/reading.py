"""Reads the committed files of a table with pyarrow."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_kafkalite.tables.locations import using
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.model import Span, Table, is_hidden

if TYPE_CHECKING:
    import pyarrow.dataset
    import pyarrow.fs


def read(table: Table | str | os.PathLike[str]) -> "pyarrow.dataset.Dataset":
    """Return the rows of all commits of a table, each once, also of commits that are being published.

        read("/data/orders").to_table(columns=["key", "_offset"])

    The rows are those of this moment: later commits and compactions change nothing, until the retention of replaced
    files has ended. A plain reader of the directory sees the same files, the last ones a moment later.

    Arguments:
        table: an open table, or the directory of a table of plain Parquet.

    Raises:
        TableError: there is no table, or it is damaged.
    """
    from pyspark_kafkalite.tables.ddl import parse_ddl

    source = ManifestTable(table, create=False) if isinstance(table, str | os.PathLike) else table
    text = source.schema_text()
    return _dataset(source, list(_names(source)), None if text is None else parse_ddl(text))


def read_dead_letters(table: Table | str | os.PathLike[str]) -> "pyarrow.dataset.Dataset":
    """Return the records of a table that could not be decoded, each once, see DEAD_LETTER_SCHEMA.

    Arguments:
        table: an open table, or the directory of a table of plain Parquet.

    Raises:
        TableError: there is no table, or it is damaged.
    """
    from pyspark_kafkalite.tables.columns import DEAD_LETTER_SCHEMA

    source = ManifestTable(table, create=False) if isinstance(table, str | os.PathLike) else table
    names = source.state().dead_letters if isinstance(source, ManifestTable) else source.dead_letter_files()
    return _dataset(source, list(names), DEAD_LETTER_SCHEMA)


def read_spans(path: Path) -> tuple[Span, ...]:
    """Return the offsets between which the rows of a file are, of each partition. Raises OSError, ArrowInvalid."""
    from pyarrow import parquet

    name, offset = ["_topic", "_partition"], "_offset"
    rows = parquet.read_table(path, columns=[*name, offset], partitioning=None).group_by(name)
    found = rows.aggregate([(offset, "min"), (offset, "max")]).to_pylist()
    return tuple(
        sorted(Span(each["_topic"], each["_partition"], each["_offset_min"], each["_offset_max"] + 1) for each in found)
    )


def _names(source: Table) -> Iterable[str]:
    """Files that are found when they are opened, as a compaction may move them; or paths."""
    if not isinstance(source, ManifestTable):
        return source.files()
    return (name for name in source.state().files if not is_hidden(name))


def _dataset(source: Table, files: list[str], schema: "pyarrow.Schema | None") -> "pyarrow.dataset.Dataset":
    from pyarrow import dataset

    located = _located(source.location) if isinstance(source, ManifestTable) else None
    return dataset.dataset(files, schema, format="parquet", filesystem=located, ignore_prefixes=[])


def _size(path: Path) -> int:
    return path.stat().st_size


def _located(location: str) -> "pyarrow.fs.FileSystem":
    """A file system of the committed files of a table by their names, wherever they are when they are opened."""
    from pyarrow import fs

    root, local = Path(location), fs.LocalFileSystem()

    class Located(fs.FileSystemHandler):
        def get_type_name(self) -> str:
            return "kafkalite"

        def normalize_path(self, path: str) -> str:
            return path

        def get_file_info(self, paths: list[str]) -> list["pyarrow.fs.FileInfo"]:
            return [fs.FileInfo(each, fs.FileType.File, size=using(root, each, _size)) for each in paths]

        def open_input_file(self, path: str) -> "pyarrow.NativeFile":
            return using(root, path, lambda found: local.open_input_file(str(found)))

        def open_input_stream(self, path: str) -> "pyarrow.NativeFile":
            return using(root, path, lambda found: local.open_input_stream(str(found)))

        def _read_only(self, *_: object, **__: object) -> None:
            raise NotImplementedError("the files of a table are only read here")

        get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _read_only
        delete_file = move = copy_file = open_output_stream = open_append_stream = _read_only

    return fs.PyFileSystem(Located())
