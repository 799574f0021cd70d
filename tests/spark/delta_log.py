"""Removes the first versions of a Delta table from its log."""

from pathlib import Path

from deltalake import DeltaTable


def remove_earlier_versions(location: str) -> None:
    """Leave only the last version and a checkpoint in the log, as Delta does after delta.logRetentionDuration."""
    table = DeltaTable(location)
    table.create_checkpoint()
    for version in range(table.version()):
        Path(location, "_delta_log", f"{version:020}.json").unlink()
