"""An Iceberg table whose snapshots contain offsets, through `pyiceberg` and any of its catalogs: no jar.

Invariants, besides those of `table_commit`:
1. A commit is based on the snapshot that was checked, so of two writers at one snapshot one commits. pyiceberg would
   repeat an append on top of the other one, so its retries are switched off by a property of the table.
2. Ranges and ends are properties of the snapshot. Snapshots of others, such as appends or compactions, may be between
   ours, and a table that was rolled back has the offsets of that snapshot.
"""

from collections.abc import Iterator
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from pyspark_kafkalite.tables.ddl import parse_ddl
from pyspark_kafkalite.tables.errors import DamagedTableError, TableError, UnsupportedFileSystemError
from pyspark_kafkalite.tables.model import Batch, Commit
from pyspark_kafkalite.tables.table_commit import COLUMNS, LibraryTable

COMMIT, SEQUENCE = "kafkalite", "kafkalite.sequence"
RETRIES = "commit.retry.num-retries"
FILE_URL = "file://"


class IcebergOffsetTable(LibraryTable[IcebergTable]):
    """An Iceberg table on a mounted file system. Iceberg's `remove_orphan_files` removes failed attempts.

        catalog = load_catalog("shop", type="sql", uri="sqlite:////data/catalog.db", warehouse="file:///data")
        ingest(spark, IcebergOffsetTable(catalog, "shop.orders"), options, checkpoint="/data/orders-checkpoint")

    Arguments:
        catalog: of pyiceberg.
        name: of the table with its namespace, both are created; columns are added with the first batch that has them.

    Raises:
        UnsupportedFileSystemError: the location of the table is no directory. NoSuchTableError and other errors of
            pyiceberg: the catalog cannot be used.
    """

    conflict = CommitFailedException

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog = catalog
        namespace = name.rpartition(".")[0]
        if not namespace:
            raise TableError(f"table {name}: expected NAMESPACE.TABLE")
        catalog.create_namespace_if_not_exists(namespace)
        table = catalog.create_table_if_not_exists(name, parse_ddl(COLUMNS), properties={RETRIES: "0"})
        if "://" in table.location().removeprefix(FILE_URL):
            raise UnsupportedFileSystemError(
                f"table {name}: its location is {table.location()}, expected a directory; URLs are not supported"
            )
        root = Path(table.location().removeprefix(FILE_URL), "data")
        root.mkdir(parents=True, exist_ok=True)
        super().__init__(root, name)

    def files(self) -> list[str]:
        """Paths of the files of the current snapshot."""
        tasks = self._open().scan().plan_files()
        return [task.file.file_path.removeprefix(FILE_URL) for task in tasks]

    def commits(self) -> list[Commit]:
        """All commits whose snapshots have not expired, in order."""
        return list(self._commits(self._open()))[::-1]

    def schema_text(self) -> str | None:
        """The schema of the last commit that has one, as text of Spark's DDL.

        After its snapshot has expired, it is the schema of the table.
        """
        table = self._open()
        return self._schema_of(self._commits(table), lambda: table.schema().as_arrow())

    def _open(self) -> IcebergTable:
        return self._catalog.load_table(self._name)

    def _version(self, table: IcebergTable) -> object:
        return table.current_snapshot()

    def _open_to_commit(self) -> IcebergTable:
        """Return the table as it is now, without retries of pyiceberg (invariant 1)."""
        table = self._open()
        while table.properties.get(RETRIES) != "0":
            table.transaction().set_properties({RETRIES: "0"}).commit_transaction()
            table = self._open()
        return table

    def _create(self, table: IcebergTable, commit: Commit) -> None:
        """Commit with the catalog. Raises CommitFailedException: another commit was first."""
        paths = [f"{FILE_URL}{self._files.path(each)}" for each in commit.files]
        properties = {COMMIT: self._text_of(commit)}
        with table.transaction() as transaction:
            try:
                with transaction.update_schema() as update:
                    update.union_by_name(parse_ddl(commit.schema or COLUMNS))
            except (ValidationError, UnsupportedPyArrowTypeException, ValueError) as error:
                raise TableError(f"table {self._name}: the columns of the batch do not fit: {error}") from error
            transaction.set_properties({SEQUENCE: str(commit.sequence)})
            transaction.add_files(paths, snapshot_properties=properties, check_duplicate_files=False)

    def _last(self, table: IcebergTable) -> Commit | None:
        last = next(self._commits(table), None)
        if last is None and SEQUENCE in table.properties:
            raise DamagedTableError(
                f"table {self._name}: commit {table.properties[SEQUENCE]} of kafkalite is in no snapshot any more: it "
                "has expired, or the table was rolled back further; roll forward to it, or create the table again"
            )
        return last

    def _find(self, table: IcebergTable, last: Commit | None, batch: Batch) -> Commit | None:
        """The commit of a batch; a repeated batch is nearly always the last one."""
        if last is None or (last.query_id == batch.query_id and last.batch_id < batch.batch_id):
            return None
        name = batch.query_id, batch.batch_id
        return next((each for each in self._commits(table) if (each.query_id, each.batch_id) == name), None)

    def _commits(self, table: IcebergTable) -> Iterator[Commit]:
        """The commits of kafkalite, the last one first."""
        snapshot: Snapshot | None = table.current_snapshot()
        while snapshot is not None:
            summary = snapshot.summary
            if summary is not None and (text := summary.additional_properties.get(COMMIT)) is not None:
                yield self._commit_of(text, f"snapshot {snapshot.snapshot_id}")
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
