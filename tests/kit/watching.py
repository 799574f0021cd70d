"""Waits for what happens to the files of a directory, to strike in the middle of it (inotify of Linux)."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType

CREATED, MOVED_TO, MODIFIED = 0x100, 0x80, 0x2
EVENT = struct.Struct("iIII")  # watch, mask, cookie, bytes of the name that follows
LOOK_AGAIN_MS = 5
DEADLINE_S = 120.0


class Watch:
    """Events of directories from now on; a context manager.

    Arguments:
        directories: which, without what lies below them.
        mask: which events: CREATED, MOVED_TO, MODIFIED or several of them.
    """

    def __init__(self, directories: Iterable[Path], mask: int = CREATED | MOVED_TO) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = _checked(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        for directory in directories:
            _checked(libc.inotify_add_watch(self._fd, os.fsencode(directory), ctypes.c_uint32(mask)))

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def wait(self, count: int, matches: Callable[[str], bool], given_up: Callable[[], bool]) -> str | None:
        """Block until `count` events on names that match; answers the last name, None once `given_up` or too late."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            if not poll.poll(LOOK_AGAIN_MS):
                if given_up():
                    return None
                continue
            for name in self._names():
                count -= matches(name)
                if count <= 0:
                    return name
        return None

    def _names(self) -> Iterator[str]:
        events = os.read(self._fd, 64 * 1024)
        at = 0
        while at < len(events):
            size = EVENT.unpack_from(events, at)[3]
            at += EVENT.size + size
            yield os.fsdecode(events[at - size : at].rstrip(b"\0"))


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
