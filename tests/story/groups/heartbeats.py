"""Heartbeats as the broker serves them: the short way (`beat`) first, for those that change nothing, then the long one.

Here the long way is gone in any case, and must find nothing left to do where the short one was enough. Where that was
not so, the short one must have left everything as it was. A repeated heartbeat of the consumer protocol does not even
ask while the calm of its group stands: so all that would not ask are asked with each heartbeat, and must hear the same.
"""

from dataclasses import replace
from weakref import WeakKeyDictionary

from kafkalite.state.classic_requests import Done, Heartbeat
from kafkalite.state.classic_table import State
from kafkalite.state.consumer_requests import ConsumerGroupHeartbeat, HeartbeatResult
from kafkalite.state.consumer_sessions import Plain
from kafkalite.state.effects import Answer, Effects, Now, Token
from kafkalite.state.group_shard import GroupShard

__all__ = ["consumer_heartbeat", "heartbeat"]

ANSWERED: WeakKeyDictionary[GroupShard, dict[ConsumerGroupHeartbeat, Plain]] = WeakKeyDictionary()
"""What was answered by the short way, by machine."""


def heartbeat(machine: GroupShard, request: Heartbeat, token: Token, now: Now) -> Effects:
    """Of a member of the classic protocol."""
    group, member_id, generation = request.group, request.member_id, request.generation
    instance_id = request.group_instance_id
    before = classic_view(machine, request)
    plain = machine.kinds.beat(group, member_id, instance_id, generation, now.ms)
    between = classic_view(machine, request)
    assert plain or between == before, request
    effects = machine.kinds.heartbeat(request, token, now)
    nothing = effects == Effects(answers=[Answer(token, Done())])
    assert classic_view(machine, request) == between or not plain
    settled = between is not None and between[0] is State.STABLE and group not in machine.consumers.groups
    assert plain == (nothing and settled), (request, effects)
    return effects


def classic_view(machine: GroupShard, request: Heartbeat) -> tuple[State, int, int, int | None] | None:
    """What a heartbeat may change of a group, and of its sender."""
    group = machine.classic.get(request.group)
    member = None if group is None else group.members.all.get(request.member_id)
    if group is None or member is None:
        return None
    return group.state, group.generation, member.session_over_ms, member.timer_ms


def consumer_heartbeat(machine: GroupShard, request: ConsumerGroupHeartbeat, token: Token, now: Now) -> Effects:
    """Of a member of the consumer protocol."""
    before = consumer_view(machine, request)
    plain = beaten(machine, request, now)
    between = consumer_view(machine, request)
    assert plain is not None or between == before, request
    check_calm(machine, now)
    if plain is not None:
        ANSWERED.setdefault(machine, {})[request] = plain
    effects = machine.kinds.consumer_heartbeat(request, token, now)
    if plain is not None:
        result = HeartbeatResult(0, None, request.member_id, request.member_epoch, plain.interval_ms)
        assert effects == Effects(answers=[Answer(token, result)]), (request, effects)
        assert consumer_view(machine, request) == between, request
    return effects


def check_calm(machine: GroupShard, now: Now) -> None:
    """All that was answered within a calm that stands is answered the same; the sessions stay as they are."""
    answered = ANSWERED.get(machine, {})
    for request, plain in list(answered.items()):
        if not plain.calm.stands:
            del answered[request]
            continue
        heard_ms = plain.session.heard_ms
        assert beaten(machine, request, now) == plain, request
        plain.session.heard_ms = heard_ms


def beaten(machine: GroupShard, request: ConsumerGroupHeartbeat, now: Now) -> Plain | None:
    """What the short way says; one with news does not go there."""
    known = (request.group, request.member_id, request.member_epoch, request.instance_id)
    client = request.client_id, request.client_host
    if request != ConsumerGroupHeartbeat(*known, client_id=client[0], client_host=client[1]):
        return None
    return machine.consumers.beat(known[0], known[1], known[3], known[2], client, now.ms)


def consumer_view(machine: GroupShard, request: ConsumerGroupHeartbeat) -> tuple[object, ...]:
    """The same of a consumer group, where what is durable comes and goes by records."""
    watch = machine.consumers._watches.get(request.group)
    session = machine.consumers._sessions.get((request.group, request.member_id))
    times = None if session is None else (session.heard_ms, session.timeout_ms, session.timer_ms)
    return times, None if watch is None else replace(watch)
