"""A disk for a temporary data directory, which is deleted with its broker.

Names of files are not synced, because no start reads them after a crash. Records are synced as usual, so that
`flush.messages` has its usual cost.
"""

from typing import TYPE_CHECKING

from kafkalite._speedups.storage.file import Disk, File

if TYPE_CHECKING:
    from typing_extensions import Buffer


class TemporaryDisk(Disk):
    """Starts and stops a broker without waiting for the device."""

    def replace(self, path: str, data: "Buffer", *, sync: bool) -> File:
        """Atomic for readers while the machine runs. Raises OSError."""
        return super().replace(path, data, sync=False)

    def sync_dir(self, path: str) -> None:
        """Nothing to do."""
