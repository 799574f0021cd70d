"""A disk for a directory that goes with its broker.

Law: the names of files are not synced, as nobody will look for them after a crash. Records are synced as ever: who asks
for `flush.messages` wants to see what that costs.
"""

from typing import TYPE_CHECKING

from kafkalite._speedups.storage.file import Disk, File

if TYPE_CHECKING:
    from typing_extensions import Buffer


class TemporaryDisk(Disk):
    """Starts and stops a broker without waiting for the device."""

    def replace(self, path: str, data: "Buffer", *, sync: bool) -> File:
        """Whole or not at all for whoever reads it while the machine runs. Raises OSError."""
        return super().replace(path, data, sync=False)

    def sync_dir(self, path: str) -> None:
        """Nothing to do."""
