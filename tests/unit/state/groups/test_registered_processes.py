"""Two processes with one consumer id in a registered group: the older one is fenced."""

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import ZERO_UUID, TopicPartition
from kafkalite.state.groups.registered.member import FENCED_PROCESSES_MAX
from kafkalite.state.groups.registered.requests import HeartbeatAnswered, HeartbeatPlus
from tests.unit.state.groups.registered_rig import Rig

OLDER, NEWER = b"o" * 16, b"n" * 16


@pytest.fixture
def rig() -> Rig:
    return Rig()


def heartbeat(rig: Rig, generation: int, process_id: bytes) -> int:
    request = HeartbeatPlus("g", "x", generation, process_id=process_id)
    answer = rig.shard.answers[
        rig.shard.ask(lambda machine, token, now: machine.registered.heartbeat(request, token, now))
    ]
    assert isinstance(answer, HeartbeatAnswered)
    return answer.error


def test_newer_process_fences_the_older_one(rig: Rig) -> None:
    first = rig.register("x", "a", process_id=OLDER)
    second = rig.register("x", "a", process_id=NEWER)
    assert (first.error, second.error) == (0, 0)
    assert second.partitions == first.partitions, "the consumer id keeps its partitions"
    assert heartbeat(rig, first.generation, OLDER) == Error.FENCED_INSTANCE_ID
    assert rig.register("x", "a", process_id=OLDER).error == Error.FENCED_INSTANCE_ID
    assert rig.commit("x", first.generation, ("a", 0)) == [Error.ILLEGAL_GENERATION]
    assert heartbeat(rig, second.generation, NEWER) == 0
    assert rig.register("x", "a", process_id=NEWER).error == 0, "the response to its registration was lost"


def test_delayed_registration_of_older_process_fails_at_once(rig: Rig) -> None:
    rig.begin("x", "y")
    older = rig.ask("x", "a", "b", process_id=OLDER)
    newer = rig.ask("x", "a", "b", process_id=NEWER)
    assert rig.answer(older).error == Error.FENCED_INSTANCE_ID
    repeated = rig.ask("x", "a", "b", process_id=NEWER)
    assert rig.answer(newer).error == Error.REBALANCE_IN_PROGRESS, "the same process: its response was lost"
    rig.register("y", "a")
    assert rig.answer(repeated).error == 0


def test_processes_are_fenced_after_a_restart_of_the_broker(rig: Rig) -> None:
    older = rig.register("x", "a", process_id=OLDER)
    newer = rig.register("x", "a", process_id=NEWER)
    rig.shard.compact()
    rig.shard.restart()
    assert heartbeat(rig, older.generation, OLDER) == Error.FENCED_INSTANCE_ID
    assert rig.register("x", "a", process_id=OLDER).error == Error.FENCED_INSTANCE_ID
    assert heartbeat(rig, newer.generation, NEWER) == 0


def test_process_ids_are_forgotten_with_the_member(rig: Rig) -> None:
    rig.register("x", "a", process_id=OLDER)
    rig.register("x", "a", process_id=NEWER)
    rig.leave("x")
    assert rig.register("x", "a", process_id=OLDER).error == 0


def test_requests_without_process_id_are_not_fenced(rig: Rig) -> None:
    rig.register("x", "a", process_id=OLDER)
    unknown = rig.register("x", "a")
    assert (
        unknown.error == heartbeat(rig, unknown.generation, ZERO_UUID) == heartbeat(rig, unknown.generation, OLDER) == 0
    )


def test_last_fenced_processes_are_remembered(rig: Rig) -> None:
    processes = [bytes([number]) * 16 for number in range(1, FENCED_PROCESSES_MAX + 3)]
    for process_id in processes:
        assert rig.register("x", "a", process_id=process_id).error == 0
    fenced = [rig.register("x", "a", process_id=process_id).error for process_id in processes[1:-1]]
    assert fenced == [Error.FENCED_INSTANCE_ID] * FENCED_PROCESSES_MAX
    assert heartbeat(rig, 1, processes[0]) == Error.FENCED_INSTANCE_ID, "its heartbeats are fenced in any case"


def test_claim_of_restarted_process_is_accepted(rig: Rig) -> None:
    claim = [TopicPartition("a", 1)]
    first = rig.register("x", claims=claim, process_id=OLDER)
    assert rig.register("x", claims=claim, process_id=NEWER).partitions == first.partitions
    assert heartbeat(rig, first.generation, OLDER) == Error.FENCED_INSTANCE_ID


def test_registration_names_the_assignor_of_a_new_group(rig: Rig) -> None:
    assert rig.register("x", "a", assignor="guess").error == Error.UNSUPPORTED_ASSIGNOR
    assert not rig.exists()
    rig.register("x", "a", assignor="roundrobin")
    assert rig.group.definition.assignor == "roundrobin"
    assert rig.shard.replayed().registered.groups["g"].definition.assignor == "roundrobin"
    rig.register("x", "a", assignor="range")
    assert rig.group.definition.assignor == "roundrobin", "the group exists"
