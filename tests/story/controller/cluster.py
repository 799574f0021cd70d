"""A cluster of simulated brokers on one tree: processes that register, elect a controller and answer its requests."""

from collections.abc import Callable
from functools import partial
from typing import Any

from kafkalite.model import Endpoint
from kafkalite.state.controller import effects as out
from kafkalite.state.controller.values import Broker
from tests.story.controller import tree as nodes
from tests.story.controller.broker import BrokerDisks, BrokerState
from tests.story.controller.invariants import Invariants
from tests.story.controller.runtime import ControllerRuntime, Request
from tests.story.controller.schedule import Schedule
from tests.story.controller.session import LostError, Session
from tests.story.controller.tree import RejectedError, ZnodeTree

TIMEOUT_MS = 500  # until a lost request fails
CreateRuntime = Callable[..., ControllerRuntime]


class Process:
    """One process of a broker: a session, a registration, the memory of the broker, and at times the controller."""

    def __init__(self, cluster: "Cluster", broker_id: int, port: int, *, unclean: bool = False) -> None:
        self.cluster, self.broker_id, self.port, self.unclean = cluster, broker_id, port, unclean
        self.running = True
        self.controller: ControllerRuntime | None = None
        self.state = BrokerState(broker_id, cluster.disks[broker_id], cluster.invariants)
        self.open_session()

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("PLAINTEXT", "host", self.port)

    def open_session(self) -> None:
        """Register, and join the election."""
        cluster = self.cluster
        self.session = Session(cluster.tree, cluster.schedule, cluster.next_session(), self._session_lost)
        registration = Broker(self.broker_id, 0, (self.endpoint,), unclean_since=0 if self.unclean else -1)
        create = nodes.Create(f"{nodes.BROKERS}/{self.broker_id}", registration, self.session.number)
        self.session.write([create], partial(self._registered, self.session))

    def _registered(self, session: Session, result: object) -> None:
        if not self.running or session is not self.session:
            return
        node = self.cluster.tree.get(f"{nodes.BROKERS}/{self.broker_id}")
        if node is not None and node.owner == session.number:
            self.state.epoch = node.czxid
            self.elect()
        else:  # the old registration exists still, or the write was lost
            session.expire()

    def elect(self) -> None:
        """Become the controller if there is none."""
        session = self.session

        def read() -> object:
            session.watch("data", nodes.CONTROLLER, self._controller_changed)
            epoch = session.tree.nodes[nodes.EPOCH]
            exists = session.tree.get(nodes.CONTROLLER) is not None
            return exists, epoch.value, epoch.version

        def then(value: object) -> None:
            exists, epoch, version = _any(value)
            if not exists and session is self.session and self.running:
                election = [
                    nodes.Create(nodes.CONTROLLER, self.broker_id, session.number),
                    nodes.Put(nodes.EPOCH, epoch + 1, version),
                ]
                session.write(election, partial(self._elected, session, epoch + 1, version + 1), "election")

        session.read(read, then)

    def _elected(self, session: Session, epoch: int, version: int, result: object) -> None:
        if not self.running or session is not self.session or isinstance(result, RejectedError):
            return
        if isinstance(result, LostError):  # read back
            node = session.tree.get(nodes.CONTROLLER)
            same = session.tree.nodes[nodes.EPOCH].version == version
            if session.expired or node is None or node.owner != session.number or not same:
                self.cluster.schedule.after(10, self.elect)
                return
        cluster = self.cluster
        self.controller = cluster.create_runtime(
            session, cluster.schedule, cluster, self.broker_id, epoch, version, partial(self._resigned, epoch)
        )

    def _controller_changed(self) -> None:
        """The node was created, deleted or replaced: an earlier controller on this broker ends."""
        node = self.cluster.tree.get(nodes.CONTROLLER)
        if self.controller is not None and (node is None or node.owner != self.session.number):
            self.controller.moved()
        self.elect()

    def _resigned(self, epoch: int) -> None:
        """The term of an epoch is over; the next one of this broker may have begun."""
        if self.controller is not None and self.controller.epoch == epoch:
            self.controller = None

    def _session_lost(self) -> None:
        self._stop_controller()
        if self.running:
            self.open_session()

    def _stop_controller(self) -> None:
        if self.controller is not None:
            self.controller.stop()
            self.controller = None

    def kill(self) -> None:
        """End the process. Its session expires later, or at once if it says so."""
        self.running = False
        self._stop_controller()
        session = self.session
        self.cluster.schedule.after(self.cluster.schedule.chance.choice((0, 10, 300)), session.expire)


class Cluster:
    """Brokers, their disks and the tree.

    Arguments:
        create_runtime: makes the runtime of a controller; tests plant bugs in it.
    """

    def __init__(self, schedule: Schedule, brokers: int, create_runtime: CreateRuntime = ControllerRuntime) -> None:
        self.schedule = schedule
        self.tree = ZnodeTree()
        self.invariants = Invariants(self.tree)
        self.create_runtime = create_runtime
        self.faulty = True
        self._sessions = 0
        self._ports = 9000
        self.disks = {broker: BrokerDisks() for broker in range(1, brokers + 1)}
        self.processes: dict[int, Process] = {}
        for broker in self.disks:
            self.start(broker)

    def next_session(self) -> int:
        self._sessions += 1
        return self._sessions

    def start(self, broker_id: int, *, unclean: bool = False) -> None:
        """Start a process of a broker, perhaps after a power failure. Failed disks are replaced: logs are lost."""
        disks = self.disks[broker_id]
        for key in [key for key, log in disks.logs.items() if log.disk in disks.failed]:
            del disks.logs[key]
        disks.failed.clear()
        self._ports += 1
        self.processes[broker_id] = Process(self, broker_id, self._ports, unclean=unclean)

    def controllers(self) -> list[ControllerRuntime]:
        """The runtimes of controllers, obsolete ones too."""
        return [process.controller for process in self.processes.values() if process.controller is not None]

    def controller(self) -> ControllerRuntime | None:
        """The controller that the tree names."""
        node = self.tree.get(nodes.CONTROLLER)
        found = [each for each in self.controllers() if node is not None and each.session.number == node.owner]
        return found[0] if found else None

    # The network.

    def send(
        self, broker: Broker, controller_epoch: int, request: Request, respond: Callable[[object], object]
    ) -> None:
        """Deliver a request to the process that listens at the address, and its response. Both may be lost."""
        chance = self.schedule.chance
        lost = self.faulty and chance.random() < 0.1
        executed = not lost or chance.random() < 0.5

        def arrive() -> None:
            process = self.processes.get(broker.broker_id)
            listening = process is not None and process.running and process.endpoint in broker.endpoints
            if process is None or not listening or not executed:
                self.schedule.after(chance.choice((1, TIMEOUT_MS)), partial(respond, None))
                return
            response = answer(process.state, controller_epoch, request)
            after = TIMEOUT_MS if lost else self.schedule.delay_ms()
            self.schedule.after(after, partial(respond, None if lost else response))

        self.schedule.after(self.schedule.delay_ms(), arrive)


def answer(state: BrokerState, controller_epoch: int, request: Request) -> object:
    """The response of a broker."""
    if isinstance(request, out.SendUpdateMetadata):
        return state.update_metadata(controller_epoch, request)
    if isinstance(request, out.SendLeaderAndIsr):
        return state.leader_and_isr(controller_epoch, request)
    return state.stop_replica(controller_epoch, request)


def _any(value: object) -> Any:
    return value
