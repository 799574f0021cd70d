"""A process of hostile clients: a few threads, each with one trick after the other, by seeded dice.

Each thread uses at most a tenth of a core on average and waits after each trick that used more, so that on a machine
with two cores the broker and the well-behaved clients have what they need. The process prints one line when each trick
has been done once, and at its end how often each was done, as JSON.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread

from perf.loads.fairness.waits import Wait
from tests.kit.fairness.tricks import TRICKS, Trick, Visit

ROOT = Path(__file__).parents[3]
THREADS = 4
CPU_SHARE = 0.1  # of a core, for each thread
END_S = 120.0


class Hostility:
    """The threads of the process, and how often each trick was done or ended by the broker."""

    def __init__(self, address: tuple[str, int], topic: str, seed: str, tricks: Sequence[Trick]) -> None:
        self.done, self.refused = Counter[str](), Counter[str]()
        self.visits = list[tuple[str, float, float]]()
        self.all_done = Event()
        self._address, self._topic, self._seed, self._tricks = address, topic, seed, tricks
        self._lock, self._over = Lock(), Event()
        self._threads = [Thread(target=self._run, args=(number,)) for number in range(THREADS)]

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let the tricks that run end, and begin none."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, thread: int) -> None:
        random = Random(f"{self._seed}:{thread}")
        first = list(self._tricks[thread::THREADS])  # each is done once before the dice decide
        visits = 0
        while not self._over.is_set():
            trick = first.pop(0) if first else random.choice(self._tricks)
            visits += 1
            self._visit(trick, Visit(self._address, random, self._topic, f"hostile-{thread}-{visits}", self._over))

    def _visit(self, trick: Trick, visit: Visit) -> None:
        """Do a trick once, and wait for as long as its share of the processor lasts."""
        began, used_s = time.monotonic(), time.thread_time()
        try:
            trick(visit)
        except OSError:
            self._count(self.refused, trick.__name__)
        self._count(self.done, trick.__name__)
        ended = time.monotonic()
        self.visits.append((trick.__name__, began, ended))
        self._over.wait(max(0.0, began + (time.thread_time() - used_s) / CPU_SHARE - ended))

    def _count(self, counter: Counter[str], name: str) -> None:
        with self._lock:
            counter[name] += 1
            if len(self.done) == len(self._tricks):
                self.all_done.set()


def main(port: int, topic: str, seed: str, names: Sequence[str]) -> None:
    clients = Hostility(("127.0.0.1", port), topic, seed, [trick for trick in TRICKS if trick.__name__ in names])
    clients.begin()
    clients.all_done.wait(END_S)
    print("all", flush=True)
    sys.stdin.read()
    clients.end()
    print(json.dumps({"done": clients.done, "refused": clients.refused, "visits": clients.visits}))


class HostileClients:
    """The process, within a `with` block.

    Arguments:
        port: of the broker on 127.0.0.1.
        topic: one with records that the hostile clients may read.
        seed: of their dice.
        tricks: names of those that are done.

    Attributes:
        done: how often each trick was done, after the block; refused: how often the broker ended its connection.
        visits: trick, beginning and end of each, by the monotonic clock.
    """

    def __init__(self, port: int, topic: str, seed: str, tricks: Sequence[str]) -> None:
        self.done, self.refused = dict[str, int](), dict[str, int]()
        self.visits = list[tuple[str, float, float]]()
        self._arguments = (str(port), topic, seed, *tricks)

    def __enter__(self) -> "HostileClients":
        command = [sys.executable, "-m", "tests.kit.fairness.hostile", *self._arguments]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
        return self

    def wait_until_each_was_done(self) -> None:
        """Return when each trick was done once; AssertionError when the process ended before."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "all\n", "the hostile clients ended early"

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            output, _errors = self._process.communicate(timeout=END_S)
        finally:
            self._process.kill()
            self._process.wait()
        if kind is None:
            assert self._process.returncode == 0, "the hostile clients failed; their error output is above"
            found = json.loads(output.removeprefix("all\n"))
            self.done, self.refused = found["done"], found["refused"]
            self.visits = [(trick, began, ended) for trick, began, ended in found["visits"]]

    def beside(self, wait: Wait) -> list[str]:
        """The tricks that were done while a request of another client waited."""
        until = wait.planned + wait.wall_s
        return sorted({trick for trick, began, ended in self.visits if began < until and ended > wait.planned})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
