"""A session with the tree: calls are executed in their order, responses and events arrive in the order of the tree.

The connection may break: calls in flight are executed or not, writes end with `LostError`, reads are repeated, and
watches that have fired arrive when it is back. A session that has expired loses its ephemeral nodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tests.story.controller.schedule import Schedule
from tests.story.controller.tree import Change, RejectedError, Remove, ZnodeTree

Then = Callable[[object], object]


class LostError(Exception):
    """The result of a write is unknown."""


@dataclass(eq=False)
class _Call:
    execute: Callable[[], object]
    then: Then
    write: bool
    executed: bool = False
    ended: bool = False
    result: object = None


class Session:
    """One session.

    Arguments:
        lost: called once when the session has expired.
    """

    def __init__(self, tree: ZnodeTree, schedule: Schedule, number: int, lost: Callable[[], object]) -> None:
        self.tree, self.schedule, self.number = tree, schedule, number
        self.expired = False
        self.connected = True
        self._lost = lost
        self._calls: list[_Call] = []
        self._held: list[Callable[[], object]] = []  # events, while there is no connection
        self._watches: dict[tuple[str, str, Callable[[], object]], Callable[[], object]] = {}
        self._executed_ms = self._arrived_ms = 0

    def write(self, changes: Sequence[Change], then: Then, writer: object = None) -> None:
        """Execute a transaction. The result is the versions, a RejectedError, or LostError."""
        self._call(_Call(partial(self._commit, writer or self, list(changes)), then, write=True))

    def read(self, execute: Callable[[], object], then: Then) -> None:
        """Read from the tree; the function may set watches."""
        self._call(_Call(execute, then, write=False))

    def watch(self, kind: str, path: str, fired: Callable[[], object]) -> None:
        """Set a watch; called by the function of a read. Equal ones count once, as in the sessions of brokers."""
        key = kind, path, fired
        self.tree.watch(kind, path, self._watches.setdefault(key, partial(self._deliver, fired)))

    def disconnect(self) -> None:
        """Break the connection."""
        self.connected = False
        for call in [call for call in self._calls if call.write]:
            if self.schedule.chance.random() < 0.5:
                self._execute(call)
            self._calls.remove(call)
            call.ended = True
            call.then(LostError())

    def reconnect(self) -> None:
        """Continue the session."""
        if self.connected or self.expired:
            return
        self.connected = True
        held, self._held = self._held, []
        for event in held:
            self._deliver(event)
        calls, self._calls = self._calls, []
        for call in calls:
            call.ended = True  # its response, if it was executed, was lost
            self._call(_Call(call.execute, call.then, write=False))

    def expire(self) -> None:
        """End the session in the tree; its user learns of it later."""
        if self.expired:
            return
        self.expired = True
        owned = [path for path, node in self.tree.nodes.items() if node.owner == self.number]
        for path in owned:
            self.tree.commit("expiry", [Remove(path)])
        self.schedule.after(self.schedule.chance.choice((0, 5, 300)), self._lost)

    # The way there and back.

    def _commit(self, writer: object, changes: list[Change]) -> object:
        if self.expired:
            return LostError()
        try:
            return self.tree.commit(writer, changes)
        except RejectedError as error:
            return error

    def _call(self, call: _Call) -> None:
        if self.expired:
            return
        if not self.connected and call.write:
            self.schedule.after(1, partial(call.then, LostError()))
            return
        self._calls.append(call)
        if self.connected:
            self._executed_ms = max(self._executed_ms, self.schedule.now_ms + self.schedule.delay_ms())
            self.schedule.at(self._executed_ms, partial(self._execute, call))

    def _execute(self, call: _Call) -> None:
        if call.executed or call.ended or self.expired or not (self.connected or call.write):
            return
        call.executed = True
        call.result = call.execute()
        if self.connected:
            self._deliver(partial(self._respond, call))

    def _respond(self, call: _Call) -> None:
        if not call.ended:
            call.ended = True
            self._calls.remove(call)
            call.then(call.result)

    def _deliver(self, arrived: Callable[[], object]) -> None:
        """Have an event or a response arrive after all earlier ones."""
        self._arrived_ms = max(self._arrived_ms, self.schedule.now_ms + self.schedule.delay_ms())
        self.schedule.at(self._arrived_ms, partial(self._arrive, arrived))

    def _arrive(self, arrived: Callable[[], object]) -> None:
        if self.expired:
            return
        if self.connected:
            arrived()
        else:
            self._held.append(arrived)
