"""`kafkalite group` in a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys

COMMAND_S = 60.0


async def run_group_command(*arguments: str) -> list[str]:
    """The lines that `kafkalite group` prints; AssertionError if it fails."""
    whole = [sys.executable, "-m", "kafkalite", "group", *arguments]
    done = await asyncio.to_thread(subprocess.run, whole, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout.splitlines()
