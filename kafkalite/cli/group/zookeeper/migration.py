"""`group migrate`: copies the offsets of a group between ZooKeeper and the broker."""

import json

import click
from kafkalite_sdk.zk.offsets.migration import Confirmed, Migrated, Migration, MigrationPlan, Step, Storage

from kafkalite.cli.client_options import Cluster, join_names, print_rows, shorten_errors
from kafkalite.cli.failure import fail
from kafkalite.cli.group.reset_offsets import DRY_RUN
from kafkalite.cli.group.zookeeper.connection import connect_brokers, open_groups
from kafkalite.cli.group.zookeeper.options import Tree

COLUMNS = ("GROUP", "TOPIC", "PARTITION", "ZOOKEEPER-OFFSET", "BROKER-OFFSET", "DIFFERENCE", "OWNER", "STEP")
KEEP = "keep"


async def migrate_group(
    group: str, to: Storage, confirmed: Confirmed, tree: Tree, cluster: Cluster, *, dry_run: bool, as_json: bool
) -> None:
    """Print both offsets of each partition, and copy those of the source.

    Arguments:
        group: its id.
        to: the target.
        confirmed: by options.
        tree: where the group is.
        cluster: the brokers with the other offsets.
        dry_run: nothing is written.
        as_json: print JSON.
    """
    migrated = None
    async with open_groups(tree) as groups, connect_brokers(groups, cluster) as admin:
        migration = Migration(groups, admin, group, to)
        plan = await migration.plan()
        print_plan(plan, confirmed, as_json)
        require_offsets(plan)
        if refused := plan.refusals(confirmed):
            fail("nothing was copied: " + shorten_errors(refused))
        if not dry_run:
            migrated = await migration.copy(plan, confirmed)
    if migrated is None:
        click.echo(DRY_RUN, err=True)
    else:
        report(plan, migrated)


def print_plan(plan: MigrationPlan, confirmed: Confirmed, as_json: bool) -> None:
    """Print the registered consumers, and a row for each partition; with JSON, one object."""
    copies = plan.copies(confirmed)
    rows = [
        (plan.group.group, *partition, each.zookeeper, each.broker, each.difference, each.owner or None,
         shown_step(plan.step(each), partition in copies))
        for partition, each in plan.partitions.items()
    ]  # fmt: skip
    if as_json:
        keys = ("topic", "partition", "zookeeper_offset", "broker_offset", "difference", "owner", "step")
        found = {
            "group": plan.group.group,
            "to": plan.to,
            "consumers": [*plan.group.consumers],
            "broker_members": [*plan.members],
            "partitions": [dict(zip(keys, row[1:], strict=True)) for row in rows],
        }
        click.echo(json.dumps(found))
        return
    for name, each in plan.group.consumers.items():
        topics = ", ".join(each.subscription.subscription)
        click.echo(f"registered: {name}, {each.subscription.pattern} {topics}")
    if rows:
        print_rows(COLUMNS, rows, as_json=False)


def shown_step(step: Step, copied: bool) -> str:
    """What is done with a partition; a larger offset of the target is kept unless it is overwritten."""
    return Step.COPY if copied else step


def require_offsets(plan: MigrationPlan) -> None:
    """End the command if the source has no offsets; says which ones cannot be copied."""
    if plan.to is Storage.BROKER and plan.group.old_offsets:
        names = join_names(plan.group.old_offsets)
        click.echo(f"kafkalite: not convertible, BROKER-PARTITION of Kafka before 0.8: {names}", err=True)
    if plan.to is Storage.ZOOKEEPER and any(each.metadata for each in plan.committed.values()):
        click.echo("kafkalite: metadata of the broker's offsets is not copied: ZooKeeper does not store it", err=True)
    if plan.refusals(Confirmed(commit_to_both=True, if_ahead=KEEP)):
        return  # they are the reason why there are none
    if all(plan.source_and_target(each)[0] is None for each in plan.partitions.values()):
        source = Storage.ZOOKEEPER if plan.to is Storage.BROKER else Storage.BROKER
        fail(f"{plan.group.group} has no offsets in {source}, so there is nothing to copy; is its name correct?")


def report(plan: MigrationPlan, migrated: Migrated) -> None:
    """Print the result; ends the command if the target has other offsets than those that were written."""
    if migrated.missing:
        names = join_names(list(map(str, migrated.missing)))
        click.echo(f"kafkalite: not copied, as these partitions do not exist any more: {names}", err=True)
    if migrated.differing:
        names = join_names(list(map(str, migrated.differing)))
        fail(f"{plan.to} has other offsets of {names} than those that were copied: consumers run; repeat the command")
    click.echo(f"{len(migrated.copied)} offset(s) copied to {plan.to} and read back", err=True)
