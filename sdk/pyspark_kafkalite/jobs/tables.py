"""Opens the table of a job."""

from pathlib import Path

from pyspark_kafkalite.jobs.settings.job_settings import DELTA, TableSettings
from pyspark_kafkalite.tables.locations import COMMITS
from pyspark_kafkalite.tables.manifest import ManifestTable
from pyspark_kafkalite.tables.model import Table


def open_table(settings: TableSettings) -> Table:
    """Open the table of a job, or create it.

    Arguments:
        settings: of the table.

    Raises:
        TableError: it cannot be opened. ImportError: deltalake is not installed.
    """
    if settings.format == DELTA:
        from pyspark_kafkalite.tables.delta import DeltaOffsetTable

        return DeltaOffsetTable(settings.path)
    return ManifestTable(settings.path)


def existing_table(settings: TableSettings) -> Table | None:
    """Open the table of a job without a change; None = it does not exist.

    Arguments:
        settings: of the table.

    Raises:
        TableError: it cannot be opened. ImportError: deltalake is not installed.
    """
    mark = "_delta_log" if settings.format == DELTA else COMMITS
    if settings.format == DELTA:
        import pyspark_kafkalite.tables.delta  # noqa: F401 (a missing library is an error before the table exists)
    if not Path(settings.path, mark).is_dir():
        _check_directory(settings.path)
        return None
    return open_table(settings) if settings.format == DELTA else ManifestTable(settings.path, create=False)


def _check_directory(location: str) -> None:
    """Raise OSError if a table cannot be created because a file has its name."""
    path = Path(location)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"table {location}: it is a file, expected a directory")
