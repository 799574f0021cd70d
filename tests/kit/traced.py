"""A broker whose system calls fail or linger as the test specifies (strace), and the trace that proves it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.kit.brokers import Kafkalite

WRITE, SYNC = "pwritev", "fdatasync"  # what the disk port calls for the data of a partition
CALLS = f"{WRITE},pwrite64,{SYNC},fsync"


class TracedKafkalite(Kafkalite):
    """Kafkalite under strace; the tracer stands beside it, so that its pid and its exit code are the broker's own.

    Arguments:
        directory, settings: of the broker.
        inject: strace's words, such as "fdatasync:error=EIO:when=3".
        paths: only calls on these files are seen.

    Skips the test, by name, where strace is missing.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], inject: str, paths: Sequence[Path]) -> None:
        if shutil.which("strace") is None:
            pytest.skip("faults of system calls: strace is not installed")
        super().__init__(directory, settings)
        self.trace = directory / "trace"
        self.traced = True
        self._inject = inject
        self._paths = [str(path) for path in paths]

    def command(self) -> list[str]:
        if not self.traced:
            return super().command()
        paths = [part for path in self._paths for part in ("-P", path)]
        faults = ["-e", f"trace={CALLS}", "-e", f"inject={self._inject}"]
        return [
            "strace",
            "-D",
            "-f",
            "-qq",
            "--seccomp-bpf",
            "-o",
            str(self.trace),
            *faults,
            *paths,
            *super().command(),
        ]

    def calls(self, name: str) -> list[str]:
        """The traced calls of that name, by their beginnings; strace cuts one where another comes between."""
        begun: list[str] = []
        for line in self.trace.read_text().splitlines():
            process = line.partition(" ")[0]
            if f" {name}(" in line:
                begun.append(line)
            elif f"<... {name} resumed>" in line:
                mine = [number for number, each in enumerate(begun) if each.startswith(f"{process} ")]
                begun[mine[-1]] += line
        return begun

    def injected(self, name: str) -> int:
        """How many of them were tampered with."""
        return sum("INJECTED" in line or "DELAYED" in line for line in self.calls(name))
