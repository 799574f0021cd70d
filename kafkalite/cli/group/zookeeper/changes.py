"""Changes groups in ZooKeeper: reset, deletion, export and import of offsets."""

from collections.abc import Iterable, Mapping, Sequence

import click
from kafkalite_sdk.admin import Committed
from kafkalite_sdk.zk.group_changes import (
    GroupOffsets,
    RegisteredConsumersError,
    delete_group,
    set_offsets,
)
from kafkalite_sdk.zk.groups import ZooKeeperGroup, ZooKeeperGroups
from kafkalite_sdk.zk.offsets.offsets_topic import has_offsets_topic

from kafkalite.cli.client_options import Cluster, join_names, print_rows, shorten_errors
from kafkalite.cli.failure import fail
from kafkalite.cli.group.offset_lines import Wanted, csv_lines, znode_lines
from kafkalite.cli.group.reset_offsets import (
    COLUMNS,
    DRY_RUN,
    Moved,
    moves_to,
    plan_moves_from,
    print_moves,
    read_committed,
)
from kafkalite.cli.group.zookeeper.connection import connect_brokers, open_groups
from kafkalite.cli.group.zookeeper.descriptions import invalid_nodes
from kafkalite.cli.group.zookeeper.options import Tree
from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.znodes import topic_path
from kafkalite.model import TopicPartition


async def reset_group(
    group: str, to: str, topics: Sequence[str], tree: Tree, cluster: Cluster, *, dry_run: bool, as_json: bool
) -> None:
    """Set the offsets of a group without registered consumers; it is created if it does not exist.

    Arguments:
        group: its id.
        to: the position, as in `--to`.
        topics: the values of `--topic`.
        tree: where the group is.
        cluster: the brokers with the logs.
        dry_run: nothing is written.
        as_json: print JSON.
    """
    async with open_groups(tree) as groups:
        found = await read_or_new(groups, group)
        require_unregistered(found)
        before = committed_of(found)
        async with connect_brokers(groups, cluster) as admin:
            moves = await plan_moves_from(before, admin, group, to, topics)
            committed = await read_committed(admin, group) if await has_offsets_topic(groups, admin) else {}
            larger = [
                str(each)
                for each, kept in committed.items()
                if any(move.topic_partition == each and kept.offset > move.after.offset for move in moves)
            ]
        if not dry_run:
            wanted = {move.topic_partition: move.after.offset for move in moves}
            await set_offsets(groups, [GroupOffsets(group, wanted, found.offset_versions)])
    print_moves(group, Moved(moves, []), as_json, dry_run)
    if larger:
        text = f"the broker has larger offsets of {join_names(larger)}, which consumers with dual commit use"
        click.echo(f"kafkalite: {text}; reset them, too: `kafkalite group reset {group}` without --zookeeper", err=True)


async def delete_groups(names: Sequence[str], tree: Tree) -> None:
    """Delete groups without registered consumers; the others are named at the end."""
    failed: list[str] = []
    async with open_groups(tree) as groups:
        for name in dict.fromkeys(names):
            try:
                await delete_group(groups, name)
            except RegisteredConsumersError:
                failed.append(f"{name} has registered consumers: stop them first")
            except NoNodeError as error:
                failed.append(f"{name}: ZooKeeper has no such group, {error.path} does not exist")
            else:
                click.echo(f"deleted {name}")
    if failed:
        fail(shorten_errors(failed))


async def export_offsets(names: Sequence[str], tree: Tree, as_csv: bool) -> None:
    """Print the offsets of groups, or of all, in the lines of ExportZkOffsets, or as the broker's CSV."""
    async with open_groups(tree) as groups:
        found = [await groups.read(name) for name in dict.fromkeys(names or await groups.names())]
    offsets = {each.group: committed_of(each) for each in found}
    for line in csv_lines(offsets) if as_csv else znode_lines(offsets):
        click.echo(line)
    for name in names:
        if not offsets[name]:
            click.echo(f"{name} has no offsets in ZooKeeper", err=True)
    old = [
        f"{path}: BROKER-PARTITION of Kafka before 0.8 is not convertible"
        for each in found
        for path in each.old_offsets
    ]
    in_offsets = [text for text in invalid_nodes(found) if "/offsets" in text]
    if wrong := [*in_offsets, *old]:
        fail(shorten_errors(wrong))


async def import_offsets(wanted: Wanted, tree: Tree, dry_run: bool) -> None:
    """Write offsets of groups without registered consumers.

    Nothing is written unless all partitions exist and no consumer of any group is registered.
    """
    async with open_groups(tree) as groups:
        found = {name: await read_or_new(groups, name) for name in wanted}
        for each in found.values():
            require_unregistered(each)
        await require_partitions(groups, {partition for offsets in wanted.values() for partition in offsets})
        if not dry_run:
            changes = [
                GroupOffsets(name, {each: one.offset for each, one in offsets.items()}, found[name].offset_versions)
                for name, offsets in wanted.items()
            ]
            await set_offsets(groups, changes)
    rows = [
        (name, *move.topic_partition, move.before, move.after.offset)
        for name, offsets in wanted.items()
        for move in moves_to(offsets, committed_of(found[name]))
    ]
    print_rows(COLUMNS, rows, as_json=False)
    if dry_run:
        click.echo(DRY_RUN, err=True)


async def read_or_new(groups: ZooKeeperGroups, group: str) -> ZooKeeperGroup:
    """The group; an empty one if it does not exist."""
    try:
        return await groups.read(group)
    except NoNodeError:
        return ZooKeeperGroup(group, {}, {}, {}, {}, (), {})


def committed_of(group: ZooKeeperGroup) -> Mapping[TopicPartition, Committed]:
    """The offsets of a group as those of a broker's group."""
    return {each: Committed(stored.offset) for each, stored in group.offsets.items()}


def require_unregistered(group: ZooKeeperGroup) -> None:
    """End the command if the group has registered consumers."""
    if group.consumers:
        raise RegisteredConsumersError(group.group)


async def require_partitions(groups: ZooKeeperGroups, wanted: Iterable[TopicPartition]) -> None:
    """End the command unless all partitions exist."""
    topics, invalid = await groups.partitions()
    missing = [
        invalid.get(topic_path(each.topic), f"{each} does not exist: {topic_path(each.topic)} has no such partition")
        for each in sorted(wanted)
        if each.partition not in topics.get(each.topic, ())
    ]
    if missing:
        fail(f"nothing was written: {shorten_errors(missing)}")
