"""A coordination service in virtual time: the pure tree, sessions with delays, lost responses and expiry.

It follows the contract of `kafkalite.coordination.backend`: changes and responses in order, events before the responses
that show the change, suspended and lost sessions.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkalite_sdk.zk.membership.effects import Call, Children, Exists, Get

from kafkalite.clock import Outcome
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError
from kafkalite.coordination.tree import NO_SESSION, Create, Delete, Operation, Set, Tree, WatchEvent
from tests.story.controller.schedule import Schedule

Change = Callable[[int, tuple[Operation, ...]], object]


class Service:
    """The server.

    Arguments:
        schedule: virtual time.
        timeout_ms: after which a session without connection expires.

    Attributes:
        changed: called after each change, with the session and the operations.
        session: of the administrator.
        loses_response: whether the response to the next change is lost, because the connection breaks.
    """

    def __init__(self, schedule: Schedule, timeout_ms: int) -> None:
        self.schedule = schedule
        self.timeout_ms = timeout_ms
        self.tree = Tree()
        self.changed: Change = lambda session, operations: None
        self.session = self.tree.open_session()
        self.loses_response: Callable[[], bool] = lambda: False

    def open(self, client: Any) -> "ClientSession":
        """Begin a session."""
        return ClientSession(self, client)

    def change(self, *operations: Operation) -> bool:
        """A change of the administrator; False = it was rejected."""
        try:
            self.execute(self.session, operations)
        except CoordinationError:
            return False
        return True

    def execute(self, session: int, operations: tuple[Operation, ...]) -> list[Any]:
        """Execute a transaction and send the events. Raises CoordinationError."""
        for operation in operations:
            node = self.tree.find(operation.path) if isinstance(operation, Delete) else None
            strange = node is not None and node.owner not in (NO_SESSION, session) and session != self.session
            assert not strange or session not in self.tree.sessions, f"{operation.path} belongs to another session"
        results = self.tree.multi(operations, session, self.schedule.now_ms)
        self._send_events()
        self.changed(session, operations)
        return list(results)

    def expire(self, session: int) -> None:
        """End a session."""
        if session in self.tree.sessions:
            paths = sorted(self.tree.sessions[session])
            self.tree.close_session(session)
            self._send_events()
            self.changed(session, tuple(Delete(path) for path in paths))

    def _send_events(self) -> None:
        for watcher, event in self.tree.take_fired():
            watcher(event)


class ClientSession:
    """A session as its client sees it.

    Arguments:
        service: the server.
        client: has `established`, `suspended`, `resumed`, `lost`.
    """

    def __init__(self, service: Service, client: Any) -> None:
        self.service = service
        self.client = client
        self.session_id = service.tree.open_session()
        self.connected = True
        self.over = False
        self.disconnected_at = 0
        self._link = 0  # the number of the connection
        self._numbers = itertools.count()
        self._open: dict[int, tuple[Call, Callable[[Outcome], None], Callable[[], None]]] = {}
        self._sent_ms = 0
        self._received_ms = 0
        self._events: list[Callable[[], None]] = []
        service.schedule.after(0, self._establish)

    def _establish(self) -> None:
        if not self.over:
            self.client.established()

    def call(self, call: Call, then: Callable[[Outcome], None], fire: Callable[[], None]) -> None:
        """Make a call; `fire` is called when its watch fires."""
        if not self.connected and type(call) not in (Get, Exists, Children):
            self.service.schedule.after(0, partial(then, Outcome(error=ConnectionLossError())))
            return
        number = next(self._numbers)
        self._open[number] = (call, then, fire)
        if self.connected:
            self._send(number)

    def disconnect(self) -> None:
        """The connection breaks: changes in flight may have been made or not; reads wait."""
        if not self.connected or self.over:
            return
        self.connected = False
        self._link += 1
        self.disconnected_at = self.service.schedule.now_ms
        self.client.suspended()
        waiting, self._open = self._open, {}
        for number, entry in waiting.items():
            if type(entry[0]) in (Get, Exists, Children):
                self._open[number] = entry
            else:
                entry[1](Outcome(error=ConnectionLossError()))
        self.service.schedule.after(self.service.timeout_ms, partial(self._time_out, self._link))

    def reconnect(self) -> None:
        """The client reaches the server again."""
        if self.connected or self.over:
            return
        if self.session_id not in self.service.tree.sessions:
            self.lose()
            return
        self.connected = True
        self._sent_ms = self._received_ms = self.service.schedule.now_ms
        events, self._events = self._events, []
        for event in events:
            event()
        self.client.resumed()
        for number in list(self._open):
            self._send(number)

    def expire(self) -> None:
        """The server ends the session; a connected client learns of it."""
        self.service.expire(self.session_id)
        if self.connected:
            self._deliver(self.lose)

    def lose(self) -> None:
        """The client learns that the session is over."""
        if not self.over:
            self.over = True
            self.connected = False
            self._link += 1
            self.client.lost()

    def kill(self) -> None:
        """The process of the client ends; its session expires later."""
        self.over = True
        self.connected = False
        self._link += 1
        self.service.schedule.after(self.service.timeout_ms, partial(self.service.expire, self.session_id))

    def end(self) -> None:
        """The client ends the session."""
        self.over = True
        self.service.expire(self.session_id)

    def _time_out(self, link: int) -> None:
        if link == self._link and not self.connected:
            self.service.expire(self.session_id)

    def _send(self, number: int) -> None:
        schedule = self.service.schedule
        self._sent_ms = max(self._sent_ms, schedule.now_ms + schedule.delay_ms())
        schedule.at(self._sent_ms, partial(self._arrive, self._link, number))

    def _arrive(self, link: int, number: int) -> None:
        """The server executes a request."""
        if link != self._link or number not in self._open:
            return
        call, _, fire = self._open[number]
        try:
            outcome = Outcome(self._execute(call, fire))
        except CoordinationError as error:
            outcome = Outcome(error=error)
        if type(call) not in (Get, Exists, Children) and self.service.loses_response():
            self.disconnect()
            self.service.schedule.after(self.service.schedule.delay_ms(), self.reconnect)
            return
        self._deliver(partial(self._complete, number, outcome))

    def _complete(self, number: int, outcome: Outcome) -> None:
        entry = self._open.pop(number, None)
        if entry is not None:
            entry[1](outcome)

    def _deliver(self, function: Callable[[], None]) -> None:
        """Send something to the client, in order."""
        schedule = self.service.schedule
        self._received_ms = max(self._received_ms, schedule.now_ms + schedule.delay_ms())
        link = self._link
        schedule.at(self._received_ms, lambda: function() if link == self._link else None)

    def _execute(self, call: Call, fire: Callable[[], None]) -> Any:
        tree = self.service.tree
        if isinstance(call, Get | Exists | Children):
            watcher = partial(self._watch_fired, fire) if call.watch else None
            read = {Get: tree.get, Exists: tree.exists, Children: tree.children}[type(call)]
            return read(call.path, watcher, self.session_id)
        if isinstance(call, Create | Set | Delete):
            return self.service.execute(self.session_id, (call,))[0]
        return self.service.execute(self.session_id, call)

    def _watch_fired(self, fire: Callable[[], None], event: WatchEvent) -> None:
        """An event reaches a connected client in order, others when they are connected again."""
        if self.over:
            return
        if not self.connected:
            self._events.append(fire)
            return
        link, schedule = self._link, self.service.schedule
        self._received_ms = max(self._received_ms, schedule.now_ms + schedule.delay_ms())

        def deliver() -> None:
            if link == self._link:
                fire()
            elif not self.over:
                self._events.append(fire)  # the connection broke before: it is sent again
                if self.connected:
                    self._events.remove(fire)
                    fire()

        schedule.at(self._received_ms, deliver)
