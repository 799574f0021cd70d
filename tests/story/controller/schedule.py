"""Virtual time: functions that run in the order of their time, without threads."""

import heapq
import random
from collections.abc import Callable

Job = Callable[[], object]


class Schedule:
    """What will happen when. Functions of the same time run in the order in which they were added."""

    def __init__(self, chance: random.Random) -> None:
        self.now_ms = 0
        self.chance = chance
        self._jobs: list[tuple[int, int, Job]] = []
        self._added = 0

    def at(self, at_ms: int, job: Job) -> None:
        """Run a function at a time, or now if that has passed."""
        self._added += 1
        heapq.heappush(self._jobs, (max(at_ms, self.now_ms), self._added, job))

    def after(self, ms: int, job: Job) -> None:
        """Run a function after a time."""
        self.at(self.now_ms + ms, job)

    def run_until(self, end_ms: int) -> None:
        """Run everything up to this time."""
        while self._jobs and self._jobs[0][0] <= end_ms:
            self.now_ms, _, job = heapq.heappop(self._jobs)
            job()
        self.now_ms = max(self.now_ms, end_ms)

    def delay_ms(self) -> int:
        """The delay of a message: mostly short."""
        return self.chance.choice((0, 1, 1, 2, 3, 5, 20))
