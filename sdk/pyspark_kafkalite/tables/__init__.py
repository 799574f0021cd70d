"""Tables that contain each offset of their topics once: plain Parquet (`ManifestTable`), Delta, Iceberg.

Plain Python: no Spark, no JVM. Offsets are part of each commit, so Spark's checkpoint may be lost.
"""

from pyspark_kafkalite.tables.errors import (
    CommitRefusedError,
    DamagedTableError,
    TableError,
    UnsupportedFileSystemError,
)
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.model import (
    Batch,
    Commit,
    CommitResult,
    CommittedRange,
    DataFile,
    Gap,
    Recovery,
    Table,
)

__all__ = [
    "Batch",
    "Commit",
    "CommitRefusedError",
    "CommitResult",
    "CommittedRange",
    "DamagedTableError",
    "DataFile",
    "Gap",
    "ManifestTable",
    "Recovery",
    "Table",
    "TableError",
    "UnsupportedFileSystemError",
]
