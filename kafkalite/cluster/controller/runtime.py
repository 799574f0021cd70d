"""Runs the controller on the elected broker: reads the tree, gives events to the machine, executes its effects.

1. Events are handled one after another, in slices; effects of an event are executed before the next one. Events that
   arrive meanwhile are queued. A timer that such an event cancels does not expire, and a topic that it reads again is
   reported only as it is read then.
2. The machine lives for one term. Whatever ends the term (another controller, a lost session, a failed read) drops it
   with its timers, reads and connections, at the next step of its event. Then this broker joins the next election.
3. Requests to this broker go through its handlers, without a connection.
4. An unexpected exception in an event, an effect or a callback ends the term: what the event has not executed is never
   continued, because the machine would go on with half of a state. The next controller reads the tree again. This
   broker joins the election after a pause, which doubles while its terms fail.

`state/controller` decides; this module only executes.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from kafkalite.callbacks import call_each
from kafkalite.clock import Clock, Outcome, Timer
from kafkalite.cluster.controller.election import Election, Term
from kafkalite.cluster.controller.invalid_nodes import InvalidNodes, InvalidPath
from kafkalite.cluster.controller.requests import Send, convert_response, message
from kafkalite.cluster.controller.transactions import (
    fence,
    fencing_reason,
    notification_paths,
    outcome_event,
    transaction,
)
from kafkalite.cluster.controller.tree_reader import TreeReader
from kafkalite.cluster.peer import Answer, EncodingFailure, Fail
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.tree import Delete
from kafkalite.coordination.znodes.controller import CONTROLLER_EPOCH
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Endpoint
from kafkalite.slicing import Slicer, Steps, group_steps
from kafkalite.state.controller import effects
from kafkalite.state.controller.events import (
    AlterPartitions,
    AwaitDeletion,
    AwaitTopic,
    ConfigsChanged,
    ControllerMoved,
    ElectLeaders,
    Event,
    RequestFailed,
    ShutDownBroker,
    TimerExpired,
    TopicConfigsRead,
    TopicRead,
)
from kafkalite.state.controller.values import Broker, ControllerSettings, TimerName
from kafkalite.state.effects import CancelTimer, SetTimer

if TYPE_CHECKING:
    from kafkalite.state.controller.controller import ControllerCounts

LOGGER = logging.getLogger("kafkalite.controller")
FAILURE_PAUSE_S, FAILURE_PAUSE_MAX_S = 1.0, 60.0  # before the next election, after a term that failed
FAILURES_END_S = 600.0  # a term that lasted so long ends the doubling
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


RequestEvent: TypeAlias = AlterPartitions | ElectLeaders | ShutDownBroker


class Machine(Protocol):
    """The controller of `state/controller` for one term.

    Attributes:
        unclean_elections: of this term.
    """

    @property
    def unclean_elections(self) -> int: ...
    def counts(self) -> "ControllerCounts":
        """The metrics now."""

    def steps(self, event: Event, now_ms: int) -> Generator[None, None, Iterable[effects.Effect]]:
        """Handle an event in steps; returns what is to be done, in its order."""


class ControllerPeer(Protocol):
    """A broker that receives the controller's requests; `cluster.peer.Peer`, or this broker."""

    def call(self, request: Any, answer: Answer, fail: Fail) -> None: ...
    def close(self) -> None: ...


class ControllerHost(Protocol):
    """The broker, as the controller uses it."""

    def controller_settings(self, term: Term) -> ControllerSettings:
        """The settings of a new term."""

    def new_topic_id(self) -> bytes:
        """A random topic id."""

    def allows_unclean_elections(self, configs: Mapping[str, str]) -> bool:
        """Whether a topic with these configs elects replicas that are not in sync."""

    def min_insync_replicas(self, configs: Mapping[str, str]) -> int | None:
        """That of a topic with these configs; None = they do not set it."""

    @property
    def min_insync_replicas_default(self) -> int:
        """That of topics that do not set it."""

    def peer(self, broker: Broker) -> ControllerPeer:
        """A connection to a live broker, or to this one."""

    def endpoint_of(self, broker: Broker) -> Endpoint | None:
        """The address of a broker for other brokers, None if it has none."""


class ControllerRuntime:
    """The controller of one session with the coordination service.

    Arguments:
        host: this broker.
        session: with the coordination service.
        clock: for timers and elections.
        broker_id: of this broker.
        slicer: spreads the work of events over loop iterations.
        new_machine: creates the machine of a term.
    """

    def __init__(
        self,
        host: ControllerHost,
        session: Coordination,
        clock: Clock,
        broker_id: int,
        slicer: Slicer,
        new_machine: Callable[[ControllerSettings], Machine],
    ) -> None:
        self._host = host
        self._session = session
        self._clock = clock
        self._broker_id = broker_id
        self._slicer = slicer
        self._new_machine = new_machine
        self._running: RunningTerm | None = None
        self._ended_elections = 0  # unclean ones, of earlier terms
        self._invalid = InvalidNodes()
        self._failures = TermFailures(clock, broker_id)
        self._election = Election(session, clock, broker_id, self._elected, self._moved)

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""
        return self._running is not None

    @property
    def invalid_nodes(self) -> list[InvalidPath]:
        """The nodes that this broker leaves out as the controller; `/controller_epoch` if it prevents an election."""
        if self._running is not None:
            return self._invalid.list_nodes()
        error = self._election.invalid_epoch
        return (
            [] if error is None else [InvalidPath(CONTROLLER_EPOCH, str(error).removeprefix(f"{CONTROLLER_EPOCH}: "))]
        )

    @property
    def epoch(self) -> int | None:
        """The controller epoch of this broker, None if it is not the controller."""
        return None if self._running is None else self._running.term.epoch

    @property
    def counts(self) -> "ControllerCounts | None":
        """The metrics now, None if this broker is not the controller."""
        return None if self._running is None else self._running.machine.counts()

    @property
    def unclean_elections(self) -> int:
        """Those by this broker in all terms of the session."""
        return self._ended_elections + (0 if self._running is None else self._running.machine.unclean_elections)

    def start(self) -> None:
        """Join the election."""
        self._election.start()

    def close(self) -> None:
        """Leave: drop the machine. The node of an election goes with the session."""
        self._election.close()
        self._end()

    def submit(self, event: AwaitTopic | AwaitDeletion, done: Callable[[int], object]) -> None:
        """Report what a request of a client waits for.

        Arguments:
            event: its token is replaced.
            done: called once with the error code: NOT_CONTROLLER if this broker is not the controller, or resigns.
        """
        if self._running is None:
            done(KafkaErrorCode.NOT_CONTROLLER)
        else:
            self._running.wait(event, lambda completion: done(completion.error))

    def request(self, event: Steps, done: Callable[[effects.Completion], object]) -> None:
        """Report a request to change the states of partitions.

        Arguments:
            event: create the event when it is handled; its token is replaced.
            done: called once with the result; with NOT_CONTROLLER as `submit`.
        """
        if self._running is None:
            done(effects.Completion(None, KafkaErrorCode.NOT_CONTROLLER))
        else:
            self._running.request(event, done)

    def configs_changed(self, topic: str | None) -> None:
        """The configs of a topic have changed; None = those of all brokers."""
        if self._running is not None:
            self._running.configs_changed(topic)

    def _elected(self, term: Term) -> None:
        self._running = RunningTerm(
            self._host, self._session, self._clock, self._broker_id, self._slicer, term,
            self._new_machine(self._host.controller_settings(term)), self._resigned, self._failed, self._invalid,
        )  # fmt: skip
        self._invalid.clear()
        self._failures.begin()
        self._running.start()

    def _moved(self) -> None:
        if self._running is not None:
            self._running.report(ControllerMoved("/controller belongs to another session"))

    def _resigned(self, reason: str) -> None:
        LOGGER.warning("broker %d is not the controller any more: %s", self._broker_id, reason)
        self._end()
        self._election.rejoin()

    def _failed(self, error: Exception) -> None:
        """An unexpected exception: leave at once, so that another broker is elected, and come back after a pause."""
        pause_s = self._failures.count(error)
        term = None if self._running is None else self._running.term
        self._end()
        self._election.pause(term, pause_s)

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            self._ended_elections += running.machine.unclean_elections
            running.close()


class TermFailures:
    """The terms of this broker that ended with an unexpected exception.

    Arguments:
        clock: measures how long terms last.
        broker_id: of this broker.
    """

    def __init__(self, clock: Clock, broker_id: int) -> None:
        self._clock = clock
        self._broker_id = broker_id
        self._began = 0.0
        self._count = 0
        self._logged: str | None = None  # the last exception

    def begin(self) -> None:
        """A term begins."""
        self._began = self._clock.monotonic()

    def count(self, error: Exception) -> float:
        """Log the failure; returns the pause before the next election, in seconds."""
        if self._clock.monotonic() - self._began >= FAILURES_END_S:
            self._count = 0
        pause_s = min(FAILURE_PAUSE_S * (1 << min(self._count, 10)), FAILURE_PAUSE_MAX_S)
        self._count += 1
        known, self._logged = self._logged, repr(error)  # the pause limits the lines; one traceback is enough
        text = "broker %d is not the controller any more: an unexpected exception (%r); it joins an election in %.0f s"
        traceback = None if known == self._logged else error
        LOGGER.error(text, self._broker_id, error, pause_s, exc_info=traceback)
        return pause_s


class Waiting:
    """A client's request that waits: the token of the machine. Equal to itself only."""

    __slots__ = ("done",)

    def __init__(self, done: Callable[[effects.Completion], object]) -> None:
        self.done = done


class Responded(NamedTuple):
    """The response of a broker to a request; its event is created when it is handled."""

    send: Send
    response: Any


class Requested(NamedTuple):
    """A request of a broker or of a client; its event, without the token, is created when it is handled."""

    waiting: Waiting
    event: Steps


class RunningTerm:
    """One term: the machine, and what it has begun.

    Arguments:
        host, session, clock, broker_id, slicer: as of `ControllerRuntime`.
        term: of the election.
        machine: decides.
        resigned: called with the reason when the term is over.
        failed: called with an unexpected exception, which ends the term.
        invalid: the nodes that are left out.
    """

    def __init__(
        self,
        host: ControllerHost,
        session: Coordination,
        clock: Clock,
        broker_id: int,
        slicer: Slicer,
        term: Term,
        machine: Machine,
        resigned: Callable[[str], object],
        failed: Callable[[Exception], object],
        invalid: InvalidNodes,
    ) -> None:
        self.term = term
        self._host = host
        self._session = session
        self._clock = clock
        self._broker_id = broker_id
        self.machine = machine
        self._resigned = resigned
        self._failed = failed
        self._slicer = slicer
        self._reader = TreeReader(session, self.report, self._fail, invalid, slicer, host.min_insync_replicas)
        self._events: deque[Event | Responded | Requested] = deque()
        self._topics_read: dict[str, TopicRead] = {}  # the queued one of each topic that is not obsolete
        self._expired: set[TimerName] = set()  # whose event is queued
        self._handling = self._closed = False
        self._peers: dict[int, ControllerPeer] = {}
        self._timers: dict[TimerName, Timer] = {}
        self._waiting: dict[Waiting, None] = {}
        self._execute: dict[type, Callable[[Any], Steps | object]] = {  # at once, or in steps
            effects.Write: self._write,
            effects.SendUpdateMetadata: self._send,
            effects.SendLeaderAndIsr: self._send,
            effects.SendStopReplica: self._send,
            effects.DeleteNotifications: self._delete_notifications,
            effects.ReadTopic: lambda effect: self._read_topic(effect.topic),
            effects.ReadTopicConfigs: self._read_configs,
            effects.ReadStates: lambda effect: self._reader.read_states(effect.read_id, effect.partitions),
            effects.Connect: self._connect,
            effects.Disconnect: lambda effect: self._disconnect(effect.broker_id),
            effects.Completion: self._complete,
            SetTimer: self._set_timer,
            CancelTimer: lambda effect: self._cancel_timer(effect.name),
            effects.Log: lambda effect: LOGGER.log(LEVELS[effect.level], "%s", effect.text),
            effects.Resign: lambda effect: self._end(effect.reason),
        }

    def start(self) -> None:
        """Read the tree."""
        self._reader.read_snapshot()

    def close(self) -> None:
        """Drop everything; what clients wait for ends with NOT_CONTROLLER."""
        self._closed = True
        self._reader.close()
        self._events.clear()
        for peer in self._peers.values():
            peer.close()
        for timer in self._timers.values():
            timer.cancel()
        waiting, self._waiting = self._waiting, {}
        call_each(lambda each: each.done(effects.Completion(each, KafkaErrorCode.NOT_CONTROLLER)), waiting)

    def configs_changed(self, topic: str | None) -> None:
        """Report changed configs, behind the snapshot of the tree."""
        self._reader.deliver(ConfigsChanged(topic, self._host.min_insync_replicas_default))

    def request(self, event: Steps, done: Callable[[effects.Completion], object]) -> None:
        """Report a request; see `ControllerRuntime.request`."""
        waiting = Waiting(done)
        self._waiting[waiting] = None
        self._queue(Requested(waiting, event))

    def wait(self, event: AwaitTopic | AwaitDeletion, done: Callable[[effects.Completion], object]) -> None:
        """Report what a client waits for; see `ControllerRuntime.submit`."""
        waiting = Waiting(done)
        self._waiting[waiting] = None
        self.report(event._replace(token=waiting))

    def report(self, event: Event) -> None:
        """Give an event to the machine, after those that came before. `ControllerMoved` ends the term at once."""
        if self._closed:
            return
        if isinstance(event, ControllerMoved):
            self._end(event.reason)
            return
        if isinstance(event, TopicRead):
            self._topics_read[event.topic] = event
        self._queue(event)

    def _queue(self, event: "Event | Responded | Requested") -> None:
        self._events.append(event)
        if not self._handling:
            self._handling = True
            self._slicer.run(group_steps(self._handle_all()), self._handled)

    def _handle_all(self) -> Steps:
        """Handle the queued events, as long as the term lasts."""
        while self._events:
            for _ in self._handle(self._events.popleft()):
                yield
                if self._closed:
                    return

    def _handled(self, outcome: Outcome) -> None:
        self._handling = False
        try:
            outcome.result()
        except Exception as error:
            self._fail(error)

    def _handle(self, event: "Event | Responded | Requested") -> Steps:
        if isinstance(event, Responded):
            event = yield from convert_response(event.send, event.response)
        elif isinstance(event, Requested):
            requested: RequestEvent = yield from event.event
            event = requested._replace(token=event.waiting)
        elif self._is_obsolete(event):
            return
        for effect in (yield from self.machine.steps(event, self._now_ms())):
            steps = self._execute[type(effect)](effect)
            if isinstance(steps, Generator):
                yield from steps
            if self._closed:
                return
            yield

    def _is_obsolete(self, event: Event) -> bool:
        """Whether an effect of the events before it has cancelled the timer, or begun another read of the topic."""
        if isinstance(event, TimerExpired):
            if event.name not in self._expired:
                return True
            self._expired.discard(event.name)
        elif isinstance(event, TopicRead):
            if self._topics_read.get(event.topic) is not event:
                return True
            del self._topics_read[event.topic]
        return False

    def _end(self, reason: str) -> None:
        if not self._closed:
            self._closed = True  # `close` follows; nothing more of this event is executed
            self._resigned(reason)

    def _fail(self, error: Exception) -> None:
        """End the term after an unexpected exception."""
        if self._closed:  # in a callback that runs at the end of the term
            raise error
        self._closed = True
        self._failed(error)

    def _guarded(self, callback: Callable[[Any], object]) -> Callable[[Any], None]:
        """A callback of the tree or of a broker; none after the term, and its exception ends the term."""

        def run(value: Any) -> None:
            if self._closed:
                return
            try:
                callback(value)
            except Exception as error:
                self._fail(error)

        return run

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    # The tree.

    def _read_topic(self, topic: str) -> None:
        self._topics_read.pop(topic, None)
        self._reader.read_topic(topic)

    def _read_configs(self, effect: effects.ReadTopicConfigs) -> None:
        def read(configs: Mapping[str, str]) -> None:
            self.report(TopicConfigsRead(effect.topic, self._host.allows_unclean_elections(configs)))

        self._reader.read_configs(effect.topic, read)

    def _write(self, write: effects.Write) -> Steps:
        operations = yield from transaction(write, self.term.epoch_version, self._host.new_topic_id)
        self._session.multi(operations, self._guarded(lambda outcome: self.report(outcome_event(write, outcome))))

    def _delete_notifications(self, effect: effects.DeleteNotifications) -> None:
        for path in notification_paths(effect):
            self._session.multi(
                (fence(self.term.epoch_version), Delete(path)), self._guarded(partial(self._deleted, path))
            )

    def _deleted(self, path: str, outcome: Outcome) -> None:
        error = outcome.error
        if error is None:
            return
        if not isinstance(error, CoordinationError):
            raise error
        if (reason := fencing_reason(error)) is not None:
            self.report(ControllerMoved(reason))
        elif error.at == 0:  # not even the check: a connection was lost, so the next controller deletes it
            LOGGER.info("%s was not deleted: %s", path, error)

    # Brokers.

    def _connect(self, effect: effects.Connect) -> None:
        self._disconnect(effect.broker.broker_id)
        self._peers[effect.broker.broker_id] = self._host.peer(effect.broker)

    def _disconnect(self, broker_id: int) -> None:
        peer = self._peers.pop(broker_id, None)
        if peer is not None:
            peer.close()

    def _send(self, send: Send) -> Steps:
        peer = self._peers[send.broker_id]
        request = yield from message(send, self._broker_id, self.term.epoch, self._host.endpoint_of)

        def answer(response: Any) -> None:
            if self._peers.get(send.broker_id) is peer:
                self._queue(Responded(send, response))

        def fail(reason: str) -> None:
            if self._peers.get(send.broker_id) is peer:
                self.report(RequestFailed(send.request_id, reason, isinstance(reason, EncodingFailure)))

        peer.call(request, self._guarded(answer), self._guarded(fail))

    # Clients and timers.

    def _complete(self, completion: effects.Completion) -> None:
        waiting = completion.token
        assert isinstance(waiting, Waiting), "the machine returns the token of `wait`"
        del self._waiting[waiting]
        waiting.done(completion)

    def _set_timer(self, effect: SetTimer[TimerName]) -> None:
        self._cancel_timer(effect.name)
        self._timers[effect.name] = self._clock.call_at(effect.at_ms / 1000, self._fire, effect.name)

    def _cancel_timer(self, name: TimerName) -> None:
        self._expired.discard(name)
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, name: TimerName) -> None:
        del self._timers[name]
        self._expired.add(name)
        self.report(TimerExpired(name))
