"""Starts of processes that fail leave no process behind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def killed_on_failure(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a process if the block does not end, for example because its start takes too long or is interrupted."""
    try:
        yield
    except BaseException:
        process.kill()
        process.wait()
        raise
