"""Random calls of two sessions over connections that break at random, in virtual time: the contract as invariants.

1. Each call ends once. A change that has succeeded happened once, one that has failed otherwise did not happen, and one
   that has failed with ConnectionLossError happened at most once.
2. A value that a session has read, with a watch, is current, or an event of it has arrived.
3. The same seed repeats the same run.
"""

import random
from collections import Counter
from functools import partial
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.coordination.errors import ConnectionLossError
from kafkalite.coordination.tree import WatchEvent
from kafkalite.coordination.zookeeper.coordination import ZooKeeperSession
from kafkalite.coordination.zookeeper.records import SetDataRequest
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.kit.zookeeper_proxy import REQUEST, RESPONSE, Fault
from tests.unit.coordination.zookeeper.rig import HOST, PORT, Rig

NODES = ("/a", "/b", "/c", "/d")
REQUESTS = ("Create2Request", "SetDataRequest", "GetDataRequest", "GetChildren2Request", "SetWatchesRequest",
            "SyncRequest", "ConnectRequest")  # fmt: skip
STEPS = 300


class Reader:
    """Reads a node again at each event, as the users of a session do."""

    def __init__(self, session: ZooKeeperSession, path: str) -> None:
        self.value: Any = None
        self._session, self._path = session, path
        self._read()

    def _read(self, event: WatchEvent | None = None) -> None:
        self._session.get(self._path, self._known, self._read)

    def _known(self, outcome: Outcome) -> None:
        self.value = outcome.result()[0]


class Run:
    """One run; `history` is what it did and saw."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rig = Rig(seed, fragment_bytes=self.chance.choice((0, 9, 100)))
        self.rig.server.expiring = False  # several stalls in a row are longer than any session timeout
        self.history: list[Any] = []
        self.ended: Counter[int] = Counter()
        self.failed: set[int] = set()
        self.unknown: set[int] = set()

    async def main(self) -> list[Any]:
        sessions = [await self.rig.connected(), await self.rig.connected()]
        sessions[0].create("/q", b"", lambda outcome: outcome.result())
        for path in NODES:
            sessions[0].create(path, b"", lambda outcome: outcome.result())
        await pass_time(0.1)
        readers = [(path, Reader(session, path)) for session in sessions for path in NODES]
        for call in range(STEPS):
            self.change(self.chance.choice(sessions), call)
            if self.chance.random() < 0.05:
                self.fault()
            await pass_time(self.chance.choice((0.0, 0.0, 0.001, 0.02, 0.3)))
        self.rig.proxy.clear()
        await pass_time(60.0)
        assert "lost" not in self.rig.log and not any(each.suspended for each in sessions)
        self.check(readers)
        return [*self.history, *self.rig.log, self.rig.clock.monotonic()]

    def change(self, session: ZooKeeperSession, call: int) -> None:
        then = partial(self.end, call)
        if self.chance.random() < 0.5:
            session.create("/q/", str(call).encode(), then, sequence=True)
        else:
            session.set(self.chance.choice(NODES), str(call).encode(), then)

    def end(self, call: int, outcome: Outcome) -> None:
        self.history.append((call, type(outcome.error)))
        self.ended[call] += 1
        if isinstance(outcome.error, ConnectionLossError):
            self.unknown.add(call)
        elif outcome.error is not None:
            self.failed.add(call)

    def fault(self) -> None:
        fault = self.chance.choice(list(Fault))
        if self.chance.random() < 0.3:
            self.rig.network.reset(HOST, PORT, 0.5)
        elif self.chance.random() < 0.5:
            self.rig.proxy.break_now(fault)
        else:
            self.rig.proxy.break_at(self.chance.choice((REQUEST, RESPONSE)), self.chance.choice(REQUESTS), fault)

    def check(self, readers: list[tuple[str, Reader]]) -> None:
        tree = self.rig.server.tree
        assert self.ended == Counter(range(STEPS)) and self.failed == set()
        names = tree.children("/q")[0]
        created = Counter(int(tree.get(f"/q/{name}")[0]) for name in names)
        assert set(created.values()) <= {1}, "no change is repeated"
        sets = Counter(int(each.data) for each in self.rig.sent(SetDataRequest))
        happened = set(created) | set(sets)
        assert set(sets.values()) <= {1} and set(range(STEPS)) - happened <= self.unknown
        for path, reader in readers:
            assert reader.value == tree.get(path)[0], path


async def simulate(seed: int) -> list[Any]:
    """Run a seed in the loop; returns everything that was seen."""
    return await Run(seed).main()


@pytest.mark.parametrize("run", range(20))
def test_random_faults(run: int, seed: int) -> None:
    run_virtually(partial(simulate, seed + run))


def test_seed_repeats_the_run(seed: int) -> None:
    first, second = (run_virtually(partial(simulate, seed)) for _ in range(2))
    assert first == second
