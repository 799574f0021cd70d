"""Snapshots of a table's state in `_commits`, so that opening it does not read all commits.

    TABLE/_commits/00000000000000000499.snapshot   the state after commit 499

A snapshot is a cache: it is created behind its commit, and may be removed. The commits stay.
"""

import json
import logging
import os
import uuid
from pathlib import Path

from pyspark_kafkalite.tables.disk import Disk
from pyspark_kafkalite.tables.errors import DamagedTableError
from pyspark_kafkalite.tables.state import TableState

LOGGER = logging.getLogger("pyspark_kafkalite")

EVERY = 500
"""Commits between two snapshots."""

KEPT = 2
SUFFIX = ".snapshot"


def load(directory: Path) -> TableState:
    """Return the state of the newest snapshot that can be read; an empty one if there is none."""
    for path in _snapshots(directory):
        try:
            return TableState.from_json(json.loads(path.read_bytes()), str(path))
        except FileNotFoundError:
            continue  # a writer has removed it
        except (ValueError, DamagedTableError) as error:
            LOGGER.warning("the table is read from its commits: %s: %s", path, error)
    return TableState()


def write(directory: Path, temporary: Path, state: TableState, disk: Disk) -> None:
    """Create a snapshot, and remove old ones.

    Arguments:
        directory: of the commits.
        temporary: a directory on the same file system.
        state: to write; its last commit is durable.
        disk: file operations.

    Raises:
        OSError: as of the file system.
    """
    assert state.last is not None
    content = json.dumps(state.to_json(), separators=(",", ":")).encode()
    written = temporary / f"snapshot-{uuid.uuid4().hex}.json"
    disk.write(written, content)
    try:
        disk.link(written, directory / f"{state.sequence:020}{SUFFIX}")
    except FileExistsError:
        LOGGER.info("another writer has created the snapshot of commit %d", state.sequence)
    except FileNotFoundError:
        LOGGER.info("another writer has removed the snapshot of commit %d before it was complete", state.sequence)
    disk.remove(written)
    for path in _snapshots(directory)[KEPT:]:
        disk.remove(path)


def _snapshots(directory: Path) -> list[Path]:
    """The newest one first."""
    return [directory / name for name in sorted(os.listdir(directory), reverse=True) if name.endswith(SUFFIX)]
