"""Events of the controller are handled in slices: what happens between two of them, and how much is in one."""

from collections.abc import Callable, Generator, Iterable
from typing import Any

import pytest

from kafkalite.cluster.controller import tree_reader
from kafkalite.coordination import znodes
from kafkalite.coordination.znodes import controller
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.state.controller import effects, events
from kafkalite.state.controller.values import Broker, ControllerSettings
from kafkalite.state.effects import CancelTimer, SetTimer
from tests.kit.costly_clock import CostlyClock
from tests.unit.cluster.controller.kit import NotingMachine, Service
from tests.unit.cluster.controller.test_runtime import Node, on

PARTITIONS = 500
STEPS = 200
ORDERS = TopicPartition("orders", 0)
WRITE = effects.Write(1, (effects.DeleteTopicConfig("orders"),))


class LongMachine(NotingMachine):
    """Needs many steps for changed deletions. `between`: called in the middle of them, before its effects."""

    between: Callable[[], object] = staticmethod(lambda: None)

    def steps(self, event: events.Event, now_ms: int) -> Generator[None, None, Iterable[effects.Effect]]:
        if isinstance(event, events.DeletionsChanged):
            for step in range(STEPS):
                yield
                if step == STEPS // 2:
                    self.between()
        return (yield from super().steps(event, now_ms))


class LongNode(Node):
    """A controller whose slices end after some steps."""

    def __init__(self, service: Service, script: dict[type, Callable[[Any], Iterable[effects.Effect]]]) -> None:
        super().__init__(service, script, clock=CostlyClock(service.clock))

    def _machine(self, settings: ControllerSettings) -> LongMachine:
        self.machines.append(LongMachine(settings, self.script))
        return self.machines[-1]


def long_node(script: dict[type, Callable[[Any], Iterable[effects.Effect]]]) -> tuple[Service, LongNode]:
    """A controller whose events take several loop iterations, and its tree."""
    service = Service()
    service.topic("orders")
    service.write(znodes.topic_config_path("orders"), b"")
    node = LongNode(service, script)
    service.clock.advance(100)
    assert node.machine.of(events.SnapshotRead)
    return service, node


def request_deletion(service: Service) -> None:
    service.write(controller.delete_topic_path("x"), b"")


def test_events_are_handled_one_after_another_over_several_loop_iterations() -> None:
    service, node = long_node({})
    request_deletion(service)
    node.runtime.submit(events.AwaitDeletion(None, "x", 0), lambda code: None)
    assert not node.machine.of(events.DeletionsChanged) and not node.machine.of(events.AwaitDeletion)
    service.clock.advance(100)
    assert [type(each) for each in node.machine.events[-2:]] == [events.DeletionsChanged, events.AwaitDeletion]


@pytest.mark.parametrize("end", ["moved", "closed"])
def test_a_term_that_ends_in_the_middle_of_an_event_executes_nothing_of_it(end: str) -> None:
    service, node = long_node(on(events.DeletionsChanged, WRITE))
    codes: list[int] = []
    node.runtime.submit(events.AwaitDeletion(None, "x", 0), codes.append)
    service.clock.advance(100)
    request_deletion(service)
    assert not node.machine.of(events.DeletionsChanged), "it has begun, and not ended"
    if end == "moved":
        service.write(controller.CONTROLLER_EPOCH, b"7")
        service.delete(controller.CONTROLLER)
    else:
        node.runtime.close()
    assert codes == [KafkaErrorCode.NOT_CONTROLLER], "clients do not wait for the rest of the event"
    service.clock.advance(100)
    assert not node.machines[0].of(events.DeletionsChanged) and not node.raised
    assert service.exists(znodes.topic_config_path("orders"))


def test_a_term_that_ends_while_its_effects_are_executed_ends_with_the_current_one() -> None:
    long_write = effects.Write(1, tuple(effects.CheckTopic("orders", 0) for _ in range(STEPS)))
    service, node = long_node(on(events.DeletionsChanged, long_write, WRITE))
    request_deletion(service)
    while not node.machine.of(events.DeletionsChanged):
        service.clock.advance(0.001)
    sent = len(node.session.sent)
    node.runtime.close()
    service.clock.advance(100)
    assert len(node.session.sent) == sent


def test_a_timer_that_an_event_cancels_does_not_expire_behind_it() -> None:
    name = ("x", 1)
    service, node = long_node(on(events.SnapshotRead, SetTimer(name, 200)))
    node.script.update(on(events.DeletionsChanged, CancelTimer(name)))
    service.clock.advance(99)
    request_deletion(service)
    service.clock.advance(200)
    assert node.machine.of(events.DeletionsChanged) and not node.machine.of(events.TimerExpired)


def test_a_timer_that_an_event_sets_again_expires_once() -> None:
    name = ("x", 1)
    service, node = long_node(on(events.SnapshotRead, SetTimer(name, 200)))
    node.script.update(on(events.DeletionsChanged, SetTimer(name, 5_000)))
    service.clock.advance(99)
    request_deletion(service)
    service.clock.advance(1_000)
    assert node.machine.of(events.DeletionsChanged) and not node.machine.of(events.TimerExpired)
    service.clock.advance(5_000)
    assert len(node.machine.of(events.TimerExpired)) == 1


def test_a_topic_that_an_event_reads_again_is_not_reported_as_it_was_before() -> None:
    """The machine asks for a read because it knows that the nodes have changed."""
    service, node = long_node({events.TopicsChanged: lambda _event: ()})
    node.script.update(on(events.DeletionsChanged, effects.ReadTopic("orders")))
    request_deletion(service)
    service.topic("orders", 2)  # its watch: it is read and queued behind the event
    service.topic("orders", 3)
    node.session.held = {}
    service.clock.advance(1_000)
    assert node.machine.of(events.DeletionsChanged) and not node.machine.of(events.TopicRead)
    node.session.release()
    service.clock.advance(1_000)
    assert [len(each.nodes.replicas) for each in node.machine.of(events.TopicRead)] == [3]


def test_reads_of_many_states_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their responses may arrive together, and each is decoded within the loop iteration."""
    monkeypatch.setattr(tree_reader, "READS_MAX", 7)
    service = Service()
    service.topic("orders", PARTITIONS)
    for index in range(PARTITIONS):
        service.write(znodes.state_path("orders", index), znodes.encode_state(znodes.PartitionState(1, 0, (1,))))
    node = Node(service)
    waiting: list[Callable[[], object]] = []
    get = node.session._session.get

    def held(path: str, then: Callable[..., object], watch: Any = None) -> None:
        waiting.append(lambda: get(path, then, watch))

    node.session.get = held
    keys = tuple(TopicPartition("orders", index) for index in range(PARTITIONS))
    node.script.update(on(events.DeletionsChanged, effects.ReadStates(1, keys)))
    request_deletion(service)
    most = 0
    while waiting:
        most = max(most, len(waiting))
        waiting.pop(0)()
    (event,) = node.machine.of(events.StatesRead)
    assert most == 7 and list(event.states) == list(keys) and None not in event.states.values()


def test_messages_are_built_in_steps() -> None:
    """A message of thousands of partitions is some 20 ms of work."""
    leadership = effects.PartitionLeadership(0, 1, 1, 0, (1,), 0, (1,), (), (), False, 0)
    partitions = tuple(leadership._replace(partition=index) for index in range(STEPS))
    topics = (effects.TopicLeadership("orders", bytes(16), partitions),)
    broker = Broker(1, 1, (), None, {})
    send = effects.SendLeaderAndIsr(1, 1, 1, False, topics, ())
    service, node = long_node(on(events.DeletionsChanged, effects.Connect(broker), send))
    request_deletion(service)
    while not node.host.peers:
        service.clock.advance(0.001)
    assert not node.host.peers[0].calls, "the message is not complete"
    service.clock.advance(100)
    ((request, _, _),) = node.host.peers[0].calls
    assert [each.partition_index for each in request.topic_states[0].partition_states] == list(range(STEPS))
