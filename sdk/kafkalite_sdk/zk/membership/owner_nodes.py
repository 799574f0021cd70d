"""The nodes of this member: its registration and the owners of its partitions.

1. All owners of a claim are created by one `multi`: a failed claim leaves none.
2. An owner is deleted only if our session created it and it holds a stream of this member.
3. Before a change is made, the nodes that it may leave are in `unknown`; they are read back if its result is lost. A
   read after the change, in the same session, shows it.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from kafkalite.coordination.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
)
from kafkalite.coordination.tree import Create, Delete, Stat
from kafkalite.coordination.znodes.consumers import (
    CONSUMERS,
    StreamId,
    decode_owner,
    encode_owner,
    encode_registration,
    group_path,
    id_path,
    ids_path,
    owner_path,
    owners_path,
    topic_owners_path,
)
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.model import TopicPartition
from kafkalite_sdk.zk.membership.effects import Call, Exists, Get
from kafkalite_sdk.zk.membership.errors import ConsumerIdInUseError
from kafkalite_sdk.zk.membership.state import MemberState, StreamNumbers
from kafkalite_sdk.zk.membership.steps import Calls, Procedure, Wait

REPEATS_MAX = 5  # after another client has changed the same nodes
LOSS_BACKOFF_S = 0.1  # before reading back, if the session says nothing about its connection


def wait_for_connection(state: MemberState) -> Procedure[None]:
    """Wait until there is a session that is not suspended."""
    while state.suspended or state.session is None:
        yield Wait()


def change_nodes(state: MemberState, call: Call) -> Procedure[Any]:
    """Make one change, as soon as there is a connection; raises CoordinationError."""
    yield from wait_for_connection(state)
    [outcome] = yield Calls([call])
    return outcome.result()


def wait_after_loss(state: MemberState) -> Procedure[None]:
    """After ConnectionLossError: wait until nodes can be read back."""
    if not state.suspended:
        until = state.now + LOSS_BACKOFF_S
        while state.now < until and not state.suspended:
            yield Wait(until)
    yield from wait_for_connection(state)


# The registration.


def register(state: MemberState) -> Procedure[None]:
    """Create the registration, unless this session has it. Raises CoordinationError, ConsumerIdInUseError."""
    settings = state.settings
    path = id_path(settings.group, settings.consumer_id)
    give_up_at = None
    while not (yield from _create_registration(state, path)):
        [outcome] = yield Calls([state.watches.missing(Exists(path, watch=True))])
        stat = outcome.result()
        if stat is None:
            continue
        if _is_ours(state, stat):
            return
        give_up_at = give_up_at or state.now + settings.id_timeout_s
        if state.now >= give_up_at:
            raise ConsumerIdInUseError(f"{path}: session 0x{stat.ephemeral_owner:x} has registered this consumer id")
        yield Wait(give_up_at)


def _create_registration(state: MemberState, path: str) -> Procedure[bool]:
    assert state.session is not None
    registration = state.settings.subscription._replace(timestamp_ms=state.session.wall_ms)
    try:
        yield from change_nodes(state, Create(path, encode_registration(registration), ephemeral=True))
    except NodeExistsError:
        return False
    except NoNodeError:
        yield from create_parents(state, [ids_path(state.settings.group)])
        return False
    except ConnectionLossError:
        yield from wait_after_loss(state)
        return False
    return True


def delete_registration(state: MemberState) -> Procedure[None]:
    """Delete the registration if this session has created it. Raises CoordinationError."""
    path = id_path(state.settings.group, state.settings.consumer_id)
    [outcome] = yield Calls([Exists(path)])
    stat = outcome.result()
    if stat is not None and _is_ours(state, stat):
        with suppress(NoNodeError):  # another client was faster
            yield from change_nodes(state, Delete(path, stat.version))


# Owners.


def create_owners(state: MemberState, wanted: StreamNumbers) -> Procedure[bool]:
    """Create the owners of all partitions, or none; False = another member has one, which is in `blocked`.

    Raises: CoordinationError; after ConnectionLossError they are `unknown`.
    """
    error = yield from _create_owners(state, wanted)
    if isinstance(error, NoNodeError):
        topics = sorted({partition.topic for partition in wanted})
        yield from create_parents(state, [topic_owners_path(state.settings.group, topic) for topic in topics])
        error = yield from _create_owners(state, wanted)
    if isinstance(error, NodeExistsError):
        yield from _watch_owners(state, wanted)
        return False
    if error is not None:
        raise error
    return True


def delete_owners(state: MemberState) -> Procedure[None]:
    """Delete the owners of this session; those that are not ours any more are reported. Raises CoordinationError."""
    for _ in range(REPEATS_MAX):
        yield from find_owners(state)
        owned = state.held
        if not owned:
            return
        yield from wait_for_connection(state)
        state.held, state.unknown = {}, owned
        [outcome] = yield Calls([tuple(Delete(path) for path in _paths(state, owned))])
        if outcome.error is None:
            state.unknown = {}
            return
        if not isinstance(outcome.error, NoNodeError | BadVersionError):
            outcome.result()
    raise NoNodeError(owners_path(state.settings.group), detail="other clients delete the owners of this consumer")


def find_owners(state: MemberState) -> Procedure[None]:
    """Read the owners that this session has or may have: then it is known which it has. Raises CoordinationError."""
    candidates = state.held | state.unknown
    outcomes = yield Calls([Get(path) for path in _paths(state, candidates)])
    owned: StreamNumbers = {}
    for partition, outcome in zip(candidates, outcomes, strict=True):
        if isinstance(outcome.error, NoNodeError):
            continue
        stream = _own_stream(state, partition, *outcome.result())
        if stream is not None:
            owned[partition] = stream
        elif partition in state.held:
            state.report(
                ZnodeError(f"{_path(state, partition)}: another client has replaced the owner of this consumer")
            )
    state.held, state.unknown = owned, {}


def _create_owners(state: MemberState, wanted: StreamNumbers) -> Procedure[BaseException | None]:
    yield from wait_for_connection(state)
    consumer_id = state.settings.consumer_id
    creates = tuple(
        Create(_path(state, partition), encode_owner(StreamId(consumer_id, stream)), ephemeral=True)
        for partition, stream in wanted.items()
    )
    state.unknown = dict(wanted)
    [outcome] = yield Calls([creates])
    error: BaseException | None = outcome.error
    if not isinstance(error, ConnectionLossError):
        state.unknown = {}
    if error is None:
        state.held = dict(wanted)
    return error


def _watch_owners(state: MemberState, wanted: StreamNumbers) -> Procedure[None]:
    """Watch the owners that prevent the claim."""
    paths = dict(zip(_paths(state, wanted), wanted, strict=True))
    state.blocked = set(paths)
    outcomes = yield Calls([state.watches.missing(Exists(path, watch=True)) for path in paths])
    for path, outcome in zip(paths, outcomes, strict=True):
        stat = outcome.result()
        if stat is None:
            state.blocked.discard(path)
        elif _is_ours(state, stat):
            state.blocked.discard(path)
            state.unknown[paths[path]] = wanted[paths[path]]


def _own_stream(state: MemberState, partition: TopicPartition, data: bytes, stat: Stat) -> int | None:
    """The stream of an owner, None = the node is not ours."""
    try:
        owner = decode_owner(_path(state, partition), data)
    except ZnodeError:
        return None  # the caller reports it
    return owner.stream if _is_ours(state, stat) and owner.consumer_id == state.settings.consumer_id else None


def _is_ours(state: MemberState, stat: Stat) -> bool:
    return state.session is not None and stat.ephemeral_owner == state.session.session_id


def _path(state: MemberState, partition: TopicPartition) -> str:
    return owner_path(state.settings.group, *partition)


def _paths(state: MemberState, partitions: Iterable[TopicPartition]) -> list[str]:
    return [_path(state, partition) for partition in partitions]


def create_parents(state: MemberState, paths: Sequence[str]) -> Procedure[None]:
    """Create nodes and those above them, as far as they are missing. Raises CoordinationError."""
    while True:
        try:
            yield from _create_missing(state, paths)
        except ConnectionLossError:
            yield from wait_after_loss(state)
        else:
            return


def _create_missing(state: MemberState, paths: Sequence[str]) -> Procedure[None]:
    group = state.settings.group
    parents = dict.fromkeys([CONSUMERS, group_path(group), *(path.rpartition("/")[0] for path in paths), *paths])
    outcomes = yield Calls([Exists(path) for path in parents])
    for path in [path for path, outcome in zip(parents, outcomes, strict=True) if outcome.result() is None]:
        try:
            yield from change_nodes(state, Create(path))
        except NodeExistsError:
            continue  # another member was faster
        except NoNodeError:
            if path == CONSUMERS:
                raise NoNodeError(path, detail="the chroot of zookeeper.connect does not exist") from None
            raise
