"""Group commit: logs ask for a sync, and one round after the other brings all who asked to the disk.

Laws:
1. As many rounds per log directory at a time as the syncer takes; no log is in two of them, as the system tells an
   error of writing to one sync of a file only. Who asks while that runs gathers for the next one, so one sync covers
   all that was appended meanwhile, of many partitions together.
2. A round begins when `begin` is called, at the end of a pass: its partitions are synced together.
3. Nobody is told that a log is on the disk before the job of its round has succeeded.
4. A round that failed is never repeated: its directory goes offline, and all who wait there are told
   KAFKA_STORAGE_ERROR.

Sources: UnifiedLog.flush; group commit is our own (Kafka syncs once per append).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from kafkalite._speedups.file import Disk
from kafkalite.clock import Clock, Outcome
from kafkalite.storage.log import Log
from kafkalite.storage.syncing import FlushPlan, SyncAtOnce, Syncer

KAFKA_STORAGE_ERROR = 56
UNKNOWN_SERVER_ERROR = -1

Told = Callable[[int], object]
Asked = dict[Log, dict[Told, None]]


class Flusher:
    """The rounds of all log directories.

    Arguments:
        disk, clock: what is synced, and when that was.
        syncer: carries out the rounds.
        fail: takes a log directory offline, with the reason.
        active: sync the segment that is appended to, too, not only those that were closed.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        syncer: Syncer,
        fail: Callable[[str, OSError], None],
        *,
        active: bool = True,
    ) -> None:
        self.waiting: dict[str, Asked] = {}
        self.rounds = 0
        self._disk = disk
        self._clock = clock
        self._syncer: Syncer = syncer
        self._fail = fail
        self._active = active
        self._running: Counter[str] = Counter()
        self._under_way: set[Log] = set()

    def ask(self, log: Log, told: Told | None = None) -> None:
        """Have all that `log` holds now synced in the next round; `told` gets 0 or a Kafka error code then, once,
        however often it asks for the same round.
        """
        if log.failed:
            if told is not None:
                told(KAFKA_STORAGE_ERROR)
            return
        asked = self.waiting.setdefault(log.root, {}).setdefault(log, {})
        if told is not None:
            asked[told] = None

    def begin(self) -> None:
        """Start a round in every directory where somebody waits and there is room for one."""
        for root in list(self.waiting):
            self._start(root)

    def finish(self) -> None:
        """From now on a round is done when `begin` returns: the end of the broker is near."""
        self._syncer = SyncAtOnce(self._disk)
        self.begin()

    def _start(self, root: str) -> None:
        asked = self._take(root) if self._running[root] < self._syncer.rounds_max else None
        if not asked:
            return
        plans = {log: log.unflushed(active=self._active) for log in asked}
        self._under_way.update(plans)
        self._running[root] += 1
        self.rounds += 1
        self._syncer.run(root, tuple(plans.values()), partial(self._ended, root, asked, plans))

    def _take(self, root: str) -> Asked:
        """Those who wait there for logs that are in no round."""
        waiting = self.waiting[root]
        asked = {log: told for log, told in waiting.items() if log not in self._under_way}
        for log in asked:
            del waiting[log]
        if not waiting:
            del self.waiting[root]
        return asked

    def _ended(self, root: str, asked: Asked, plans: dict[Log, FlushPlan], outcome: Outcome) -> None:
        self._running[root] -= 1
        self._under_way.difference_update(plans)
        if outcome.error is not None:
            self._failed(root, asked, outcome.error)
            return
        now = self._clock.monotonic()
        for log, plan in plans.items():
            if log.flushed(plan):
                log.last_flush = now
            else:  # cut meanwhile: the plan says nothing of what came after
                self._again(root, log, asked.pop(log))
        if root in self.waiting:
            self._start(root)
        tell(asked, 0)

    def _again(self, root: str, log: Log, told: dict[Told, None]) -> None:
        self.waiting.setdefault(root, {}).setdefault(log, {}).update(told)

    def _failed(self, root: str, asked: Asked, error: BaseException) -> None:
        late = self.waiting.pop(root, {})
        code = UNKNOWN_SERVER_ERROR
        try:
            if not isinstance(error, OSError):
                raise error
            code = KAFKA_STORAGE_ERROR
            self._fail(root, error)
        finally:
            tell(asked, code)
            tell(late, code)


def tell(asked: Asked, error: int) -> None:
    """Tell everybody, whatever one of them raises; that is raised after all."""
    failure: Exception | None = None
    for told in everybody(asked):
        try:
            told(error)
        except Exception as raised:
            failure = failure or raised
    if failure is not None:
        raise failure


def everybody(asked: Asked) -> Iterator[Told]:
    """All who wait for any of these logs."""
    for told in asked.values():
        yield from told
