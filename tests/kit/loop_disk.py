"""A file system in an image file, which can lose its power, be filled to the last byte, and be mounted again.

Needs root and Linux' loop devices. Invariant: whatever becomes of the test, the mount and the loop device go away.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pytest

SHUTDOWN = 0x8004587D  # the shutdown ioctl of xfs, which ext4 has taken over
WITHOUT_LOG_FLUSH = 2  # nothing that waits in memory reaches the disk, the journal neither
MOUNT = "kafkalite-mount-"  # and the process that answers for it
DEVICES = Path("/dev/loop-control")


def missing(filesystem: str) -> str | None:
    """Why there can be no such disk on this machine, or None."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if not DEVICES.exists():
        return "there are no loop devices"
    tools = [tool for tool in ("mount", "umount", f"mkfs.{filesystem}") if shutil.which(tool) is None]
    return f"not installed: {', '.join(tools)}" if tools else None


def sweep() -> None:
    """Unmount what test runs left that were killed."""
    for mounted in _mount_points():
        owner = mounted.name.removeprefix(MOUNT)
        if owner != mounted.name and not Path("/proc", owner).exists():
            done = subprocess.run(["umount", "--lazy", str(mounted)], capture_output=True, text=True)
            assert done.returncode == 0 or mounted not in _mount_points(), done.stderr  # another run may sweep, too


def _mount_points() -> list[Path]:
    return [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]


class LoopDisk:
    """A mounted image; a context manager. Skips the test, by name, where the machine cannot have one.

    Arguments:
        directory: for the image and the mount point.
        filesystem: "ext4" or "xfs".
        megabytes: of the image, which is sparse; xfs needs 300.
    """

    def __init__(self, directory: Path, filesystem: str, megabytes: int) -> None:
        self.path = directory / f"{MOUNT}{os.getpid()}"
        self._image = directory / f"{filesystem}.img"
        self._filesystem = filesystem
        self._megabytes = megabytes

    def __enter__(self) -> LoopDisk:
        if (reason := missing(self._filesystem)) is not None:
            pytest.skip(f"{self._filesystem} on a loop device: {reason}")
        sweep()
        self.path.mkdir(parents=True)
        with open(self._image, "wb") as image:
            image.truncate(self._megabytes << 20)
        _run(f"mkfs.{self._filesystem}", "-q", str(self._image))
        self.mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.path.is_mount():
            self.unmount()
        self._image.unlink()

    def mount(self, *, read_only: bool = False) -> None:
        """Attach the image; a journal left by a cut is replayed."""
        _run("mount", "-o", "loop,ro" if read_only else "loop", str(self._image), str(self.path))

    def unmount(self) -> None:
        """Detach it, the loop device too. No process may have files open there."""
        _run("umount", str(self.path))

    def cut_power(self) -> None:
        """From now on nothing reaches the disk, and every write and sync fails."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def fill(self) -> Path:
        """Fill the disk to its last block, those reserved for root, too; returns the file to delete."""
        filler = self.path / "filler"
        found = os.statvfs(self.path)
        with open(filler, "wb", buffering=0) as file:
            with suppress(OSError):  # the file system needs blocks for the extents
                os.posix_fallocate(file.fileno(), 0, found.f_bfree * found.f_frsize)
            file.seek(0, os.SEEK_END)
            try:
                while file.write(bytes(found.f_frsize)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
        return filler

    def free_bytes(self) -> int:
        """The free bytes of the file system."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
