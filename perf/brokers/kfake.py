"""kfake of franz-go (Go): our own main program around it, writing to disk; built on first use into the cache."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from perf.brokers.base import Broker, BrokerError, Running, cache_directory, free_port, spawn

SOURCE = Path(__file__).parent.parent / "kfake"


class Kfake(Broker):
    name = "kfake"
    title = "kfake"

    def missing(self) -> str | None:
        return None if shutil.which("go") else "not installed: go"

    def version(self) -> str:
        found = re.search(r"pkg/kfake v\S+-(\d{8})\d+-(\w+)", (SOURCE / "go.mod").read_text())
        if found is None:
            raise BrokerError("perf/kfake/go.mod does not pin kfake")
        return f"{found[1]}-{found[2][:7]}"

    def start(self, directory: Path, settings: Mapping[str, str] | None = None) -> Running:
        if settings:
            raise BrokerError("kfake takes no settings")
        directory.mkdir(parents=True, exist_ok=True)
        binary, port = self._binary(), free_port()
        return spawn(self.name, [str(binary), "-dir", str(directory / "data"), "-port", str(port)], port, directory)

    def _binary(self) -> Path:
        binary = cache_directory() / f"kfake-{self.version()}"
        if not binary.exists() or binary.stat().st_mtime < (SOURCE / "main.go").stat().st_mtime:
            binary.parent.mkdir(parents=True, exist_ok=True)
            partial = binary.with_suffix(f".{os.getpid()}")
            command = ["go", "build", "-buildvcs=false", "-o", str(partial), "."]
            done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True)
            if done.returncode != 0:
                raise BrokerError(f"kfake could not be built:\n{done.stderr}")
            partial.rename(binary)
        return binary
