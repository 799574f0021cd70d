"""Prints a digest of the wire log of simulations: `python -m tests.story.sdk.replay groups:1 leaders:2`.

With `--show` it prints each write, too, so that `diff` finds where the runs of two processes begin to differ.
"""

import hashlib
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from kafkalite.testing.memory_network import MemoryTransport
from tests.story.sdk.scripted_world import run_scripted
from tests.story.sdk.world import run


class WireLog:
    """All writes of connections in memory, with their times and addresses, since the creation or the last `begin`.

    Arguments:
        show: print each write.
    """

    def __init__(self, *, show: bool) -> None:
        self._show = show
        self.begin()
        write = MemoryTransport.write

        def recorded(transport: MemoryTransport, data: Any) -> None:
            self._add(transport, bytes(data))
            write(transport, data)

        MemoryTransport.write = recorded  # type: ignore[method-assign]

    def begin(self) -> None:
        """Forget the former writes."""
        self.writes = 0
        self.digest = hashlib.sha256()

    def _add(self, transport: MemoryTransport, data: bytes) -> None:
        ends = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        line = f"{transport._loop.time()!r} {ends} {data!r}"
        self.writes += 1
        self.digest.update(line.encode())
        if self._show:
            print(line)


def replay(simulation: str, seed: int) -> None:
    """Run `scenario` of a module `test_simulation_*`."""
    scenario = importlib.import_module(f"tests.story.sdk.test_simulation_{simulation}").scenario
    if simulation == "leaders":
        run_scripted(seed, scenario)
    else:
        with tempfile.TemporaryDirectory() as directory:
            run(Path(directory), seed, scenario)


def main(runs: list[str], *, show: bool) -> None:
    """Run simulations, each given as `name:seed`; print the number of writes and their digest after each."""
    log = WireLog(show=show)
    for each in runs:
        name, seed = each.split(":")
        log.begin()
        replay(name, int(seed))
        print(each, log.writes, log.digest.hexdigest())


if __name__ == "__main__":
    main([each for each in sys.argv[1:] if each != "--show"], show="--show" in sys.argv)
