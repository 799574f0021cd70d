"""Changes groups of ZooKeeper-era consumers: sets their offsets, deletes them.

1. Without `registered`, a change is made only while no consumer is registered: each transaction deletes the node `ids`
   and creates it again, which fails if it has children. ZooKeeper has no other condition on the children of a node.
2. An offset is written only if its node has the version that was read, so no commit of a consumer is overwritten that
   the caller does not know.
3. Many offsets need several transactions, of which the first ones stay if a later one fails; a repetition completes
   them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkalite.coordination.errors import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from kafkalite.coordination.tree import Create, Delete, Operation, Set
from kafkalite.coordination.znodes import consumers, parents
from kafkalite.model import TopicPartition
from kafkalite_sdk.zk.groups import ZooKeeperGroups

BYTES_MAX = 500_000  # of a transaction; servers accept 1 MiB (jute.maxbuffer)
OPERATION_BYTES = 64  # beside path and data


class GroupChangedError(Exception):
    """A node was changed by another session since it was read; the text names its path."""


class RegisteredConsumersError(Exception):
    """Consumers are registered; the text names the group."""


class GroupOffsets(NamedTuple):
    """New offsets of one group, and the versions of the nodes that exist, as they were read."""

    group: str
    offsets: Mapping[TopicPartition, int]
    versions: Mapping[TopicPartition, int]


class Guard(NamedTuple):
    """Operations at the begin and at the end of a transaction that fails if a consumer is registered."""

    before: tuple[Operation, ...]
    after: tuple[Operation, ...]


UNGUARDED = Guard((), ())


async def set_offsets(groups: ZooKeeperGroups, wanted: Sequence[GroupOffsets], *, registered: bool = False) -> None:
    """Write offsets of groups; groups that do not exist are created.

    Arguments:
        groups: of the session.
        wanted: the new offsets.
        registered: also while consumers are registered.

    Raises GroupChangedError, RegisteredConsumersError, CoordinationError, TimeoutError.
    """
    for each in wanted:
        consumers.check_group(each.group)
        if not registered:
            await _guard(groups, each.group)  # before anything is written; each transaction checks it again
    for each in wanted:
        if each.offsets:
            await _create_missing(groups, each)
    for each in wanted:
        guard = UNGUARDED if registered else await _guard(groups, each.group)
        operations = [_write(each, *offset) for offset in sorted(each.offsets.items())]
        for part in parts_of(operations):
            await _commit(groups, each.group, [*guard.before, *part, *guard.after])


async def delete_group(groups: ZooKeeperGroups, group: str) -> None:
    """Delete all nodes of a group without registered consumers.

    Raises GroupChangedError, RegisteredConsumersError, NoNodeError: there is no such group; CoordinationError,
    TimeoutError, ValueError.
    """
    consumers.check_group(group)
    path = consumers.group_path(group)
    if await groups.calls.exists(path) is None:
        raise NoNodeError(path)
    below = [each for each in await _subtree(groups, path) if each not in (path, consumers.ids_path(group))]
    guard = await _guard(groups, group)
    if any(each.startswith(f"{consumers.ids_path(group)}/") for each in below):
        raise RegisteredConsumersError(group)
    *first, last = parts_of([Delete(each) for each in reversed(below)]) or [[]]
    for part in first:
        await _commit(groups, group, [*guard.before, *part, *guard.after])
    deleted = [each for each in guard.before if isinstance(each, Delete)]
    await _commit(groups, group, [*deleted, *last, Delete(path)])


def parts_of(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Split operations into transactions of at most BYTES_MAX."""
    parts: list[list[Operation]] = []
    size = BYTES_MAX
    for each in operations:
        cost = OPERATION_BYTES + len(each.path) + (len(each.data) if isinstance(each, Create | Set) else 0)
        if size + cost > BYTES_MAX:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += cost
    return parts


def _write(wanted: GroupOffsets, partition: TopicPartition, offset: int) -> Operation:
    path = consumers.offset_path(wanted.group, *partition)
    version = wanted.versions.get(partition)
    data = consumers.encode_offset(offset)
    return Create(path, data) if version is None else Set(path, data, version)


async def _create_missing(groups: ZooKeeperGroups, wanted: GroupOffsets) -> None:
    """Create the nodes above the offsets. They have no content, so another session may create them, too."""
    paths = dict.fromkeys(
        above for each in wanted.offsets for above in parents(consumers.offset_path(wanted.group, *each))
    )
    for path in paths:
        if await groups.calls.exists(path) is None:
            try:
                await groups.calls.multi([Create(path)])
            except NodeExistsError:
                continue


async def _guard(groups: ZooKeeperGroups, group: str) -> Guard:
    path = consumers.ids_path(group)
    stat = await groups.calls.exists(path)
    if stat is not None and stat.num_children:
        raise RegisteredConsumersError(group)
    exists = stat is not None
    return Guard((Delete(path),), (Create(path),)) if exists else Guard((Create(path),), (Delete(path),))


async def _commit(groups: ZooKeeperGroups, group: str, operations: Sequence[Operation]) -> None:
    try:
        await groups.calls.multi(operations)
    except NotEmptyError as error:
        if error.path in ("", consumers.ids_path(group)) or error.at == 0:
            raise RegisteredConsumersError(group) from error
        raise GroupChangedError(operations[error.at].path) from error
    except (BadVersionError, NodeExistsError, NoNodeError) as error:
        raise GroupChangedError(operations[error.at].path) from error


async def _subtree(groups: ZooKeeperGroups, path: str) -> list[str]:
    """A node and all below it, parents before children."""
    found, level = [path], [path]
    while level:
        reads = await groups.calls.children_of_each(level)
        level = [f"{above}/{name}" for above, names in reads.values.items() for name in names]
        found += level
    return found
