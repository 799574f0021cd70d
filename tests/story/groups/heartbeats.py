"""Heartbeats as the broker serves them: the fast path first (`fast_heartbeat`), then the general path.

Here the general path is always run. It must change nothing if the fast path has served the heartbeat; otherwise the
fast path must have changed nothing.
"""

from dataclasses import replace

from kafkalite.state.effects import Answer, Effects, Now, Token
from kafkalite.state.groups.classic.requests import ErrorOnly, Heartbeat
from kafkalite.state.groups.classic.states import ClassicState
from kafkalite.state.groups.consumer.requests import ConsumerGroupHeartbeat, HeartbeatResult
from kafkalite.state.groups.machine import GroupMachine

__all__ = ["consumer_heartbeat", "heartbeat"]


def heartbeat(machine: GroupMachine, request: Heartbeat, token: Token, now: Now) -> Effects:
    """The heartbeat of a classic member."""
    group, member_id, generation = request.group, request.member_id, request.generation
    instance_id = request.group_instance_id
    before = classic_view(machine, request)
    plain = machine.registry.fast_heartbeat(group, member_id, instance_id, generation, now.ms)
    between = classic_view(machine, request)
    assert plain or between == before, request
    effects = machine.registry.heartbeat(request, token, now)
    nothing = effects == Effects(answers=[Answer(token, ErrorOnly())])
    assert classic_view(machine, request) == between or not plain
    stable = between is not None and between[0] is ClassicState.STABLE and group not in machine.consumers.groups
    assert plain == (nothing and stable), (request, effects)
    return effects


def classic_view(machine: GroupMachine, request: Heartbeat) -> tuple[ClassicState, int, int, int | None] | None:
    """What a heartbeat may change in a classic group."""
    group = machine.classic.groups.get(request.group)
    member = None if group is None else group.members.all.get(request.member_id)
    if group is None or member is None:
        return None
    return group.state, group.generation, member.session.over_ms, member.session.timer_ms


def consumer_heartbeat(machine: GroupMachine, request: ConsumerGroupHeartbeat, token: Token, now: Now) -> Effects:
    """The heartbeat of a member of the consumer protocol."""
    before = consumer_view(machine, request)
    interval_ms = beaten(machine, request, now)
    between = consumer_view(machine, request)
    assert interval_ms is not None or between == before, request
    effects = machine.registry.consumer_heartbeat(request, token, now)
    if interval_ms is not None:
        result = HeartbeatResult(0, None, request.member_id, request.member_epoch, interval_ms)
        assert effects == Effects(answers=[Answer(token, result)]), (request, effects)
        assert consumer_view(machine, request) == between, request
    return effects


def beaten(machine: GroupMachine, request: ConsumerGroupHeartbeat, now: Now) -> int | None:
    """The result of the fast path; a heartbeat with changes does not use it."""
    known = (request.group, request.member_id, request.member_epoch, request.instance_id)
    client = request.client_id, request.client_host
    if request != ConsumerGroupHeartbeat(*known, client_id=client[0], client_host=client[1]):
        return None
    return machine.consumers.heartbeats.fast_heartbeat(known[0], known[1], known[3], known[2], client, now.ms)


def consumer_view(machine: GroupMachine, request: ConsumerGroupHeartbeat) -> tuple[object, ...]:
    """What a heartbeat may change in a consumer group beside its records."""
    watch = machine.consumers._watches.get(request.group)
    session = machine.consumers._sessions.get((request.group, request.member_id))
    times = None if session is None else replace(session)
    return times, None if watch is None else replace(watch)
