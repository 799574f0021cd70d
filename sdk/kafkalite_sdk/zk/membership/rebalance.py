"""The procedures of a member: join the group, rebalance, leave.

A rebalance, in this order: read the group and compute the assignment; if it changes this member's partitions, stop
fetching (the listener is called), commit, delete the owners, create the new ones, read the offsets, fetch.

Deviations from Java, with reasons:
1. The group is read before the release: an unchanged assignment stops nothing.
2. A claim that another member's owner prevents is repeated when that owner is deleted, or after the backoff.
3. Attempts begin at once, and are counted from 0, when the group has changed again: the earlier ones were based on an
   assignment that is not valid any more.
4. Offsets are read after the owners are created: the previous owner commits before it deletes its own.
5. A member that fails deletes its nodes; Java's remains registered, and no member reads its partitions.
"""

from kafkalite.coordination.errors import (
    AuthenticationError,
    BadArgumentsError,
    ConnectionLossError,
    CoordinationError,
    InvalidAclError,
    NoAuthError,
    UnimplementedError,
)
from kafkalite.model import TopicPartition
from kafkalite_sdk.zk.membership.assignors import Assignment
from kafkalite_sdk.zk.membership.effects import Fetch, FetchStart, Positions
from kafkalite_sdk.zk.membership.errors import ConsumerRebalanceFailedError, NotRegisteredError, OffsetsTimeoutError
from kafkalite_sdk.zk.membership.group_view import compute_assignment, read_group
from kafkalite_sdk.zk.membership.owner_nodes import (
    create_owners,
    delete_owners,
    delete_registration,
    find_owners,
    register,
    wait_after_loss,
    wait_for_connection,
)
from kafkalite_sdk.zk.membership.state import MemberState, StreamNumbers
from kafkalite_sdk.zk.membership.steps import Commit, Offsets, Procedure, Stop, Wait

# Errors that every attempt would have: the configuration must change.
LASTING = (AuthenticationError, BadArgumentsError, InvalidAclError, NoAuthError, UnimplementedError)


def member_session(state: MemberState) -> Procedure[None]:
    """Everything a member does in one session. Begins with the release of what it has fetched in the last one.

    Raises: errors after which the consumer must end.
    """
    yield from _stop_lost(state)
    yield from wait_for_connection(state)
    yield from register(state)
    while True:
        yield from _rebalance_until_done(state)
        while not state.changed:
            yield Wait()


def leave(state: MemberState) -> Procedure[None]:
    """Release, commit, delete owners and registration; without a session only release. Raises CoordinationError."""
    without_session = state.session is None
    positions = yield Stop(lost=without_session)
    if without_session:
        return
    yield Commit(positions)
    while True:
        yield from wait_for_connection(state)
        try:
            yield from delete_owners(state)
            yield from delete_registration(state)
        except ConnectionLossError:
            yield from wait_after_loss(state)
        else:
            return


def _stop_lost(state: MemberState) -> Procedure[None]:
    if state.active:
        yield Stop(lost=True)


def _rebalance_until_done(state: MemberState) -> Procedure[None]:
    """Attempts until one succeeds.

    Raises: ConsumerRebalanceFailedError, or an error of the service that lasts.
    """
    settings = state.settings
    give_up_at = None
    while True:
        state.changed = False
        error: Exception | None = None
        try:
            if (yield from _rebalance(state)):
                return
        except LASTING:
            raise
        except ConnectionLossError:
            yield from wait_after_loss(state)
            continue
        except NotRegisteredError as missing:
            state.report(missing)
            yield from register(state)
        except (CoordinationError, OffsetsTimeoutError) as failure:
            error = failure
            state.report(failure)
        if state.changed:
            give_up_at = None
            continue
        give_up_at = give_up_at or state.now + settings.rebalance_timeout_s
        yield from _back_off(state, give_up_at, error)


def _back_off(state: MemberState, give_up_at: float, error: Exception | None) -> Procedure[None]:
    """Wait for the next attempt; after the last one, raises ConsumerRebalanceFailedError."""
    settings = state.settings
    until = min(state.now + settings.rebalance_backoff_s, give_up_at)
    while not state.changed and state.now < until and (state.blocked or error is not None):
        yield Wait(until)
    if state.now >= give_up_at and not state.changed:
        owners = ", ".join(sorted(state.blocked)[:3])
        reason = f"; owned by others: {owners}" if owners else (f": {error}" if error else "")
        raise ConsumerRebalanceFailedError(
            f"{settings.consumer_id} can't rebalance after {settings.rebalance_retries} retries{reason}"
        )


def _rebalance(state: MemberState) -> Procedure[bool]:
    """One attempt; False = it failed, or the group has changed meanwhile."""
    state.blocked = set()
    if state.unknown:
        yield from find_owners(state)
    view = yield from read_group(state)
    if view is None:
        return True
    group = compute_assignment(view, state.settings)
    wanted = _own_streams(state, group)
    if state.active == wanted == state.held and not state.releasing and (yield from _has_owners(state, wanted)):
        return True
    yield from _release(state)
    if not (state.held == wanted and (yield from _has_owners(state, wanted))):
        yield from delete_owners(state)
        if state.changed or (wanted and not (yield from create_owners(state, wanted))):
            return False
    return (yield from _fetch(state, wanted, group))


def _own_streams(state: MemberState, group: Assignment) -> StreamNumbers:
    own = state.settings.consumer_id
    return {partition: stream.stream for partition, stream in group.items() if stream.consumer_id == own}


def _has_owners(state: MemberState, wanted: StreamNumbers) -> Procedure[bool]:
    """Whether the owners still are in the tree."""
    if state.held:
        yield from find_owners(state)
    return state.held == wanted


def _release(state: MemberState) -> Procedure[None]:
    """Stop fetching and commit; without partitions too, because earlier commits end before owners are deleted."""
    positions: Positions = yield Stop()
    yield Commit(positions)


def _fetch(state: MemberState, wanted: StreamNumbers, group: Assignment) -> Procedure[bool]:
    """Read the offsets and fetch; False = the group has changed."""
    offsets = {}
    if wanted:
        outcome = yield Offsets(frozenset(wanted))
        if outcome.error is not None:
            raise OffsetsTimeoutError(f"offsets were not read: {outcome.error}") from outcome.error
        offsets = outcome.result()
    if state.suspended:
        yield from wait_for_connection(state)
        state.changed = True
    if state.changed:
        return False
    state.active = dict(wanted)
    starts: dict[TopicPartition, FetchStart] = {}
    for partition, stream in wanted.items():
        offset = offsets.get(partition)
        if isinstance(offset, Exception):
            state.report(offset)
        else:
            starts[partition] = FetchStart(stream, offset)
    state.effects.append(Fetch(starts, group))
    return True
