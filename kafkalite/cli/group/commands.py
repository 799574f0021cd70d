"""`kafkalite group`: list, describe, create, delete, rewind, reset, verify and migrate groups, export and import their
offsets.

With `--zookeeper`, a command is about groups of ZooKeeper-era consumers; its modules are imported only then.
"""

import click
from kafkalite_sdk import Admin
from kafkalite_sdk.admin.topic_types import PartitionDescription

from kafkalite.cli.client_options import (
    AnyCaseChoice,
    Cluster,
    Seconds,
    Several,
    check,
    cluster_options,
    command_runner,
    fail_for,
    fail_for_unknown,
    json_option,
    names_option,
    print_rows,
    some_topics_option,
)
from kafkalite.cli.completion import complete_groups, complete_topics
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import fail
from kafkalite.cli.group.descriptions import print_group, print_summary, unknown_lags
from kafkalite.cli.group.offsets import offsets
from kafkalite.cli.group.reset_offsets import (
    EMPTY,
    Moved,
    commit_moves,
    plan_moves,
    print_moves,
    require_empty,
    rewind_with_members,
)
from kafkalite.cli.group.zookeeper.options import Tree, reject_options, tree_options
from kafkalite.cli.positions import TO_HELP
from kafkalite.errors import GroupIdNotFoundError, KafkaError, KafkaErrorCode

OFFSETS_TOPIC = "__consumer_offsets"
# There are no groups yet, or this client may list groups and not describe the topic.
NO_OFFSETS_TOPIC = (KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED)
ANSWER_S = 15.0  # for the answers of the coordinator and the leaders
LIST_COLUMNS = ("GROUP", "TYPE", "STATE", "PROTOCOL-TYPE", "COORDINATOR")
# Group states and types that ListGroups filters by, without regard to case.
STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "NotReady",
    "Dead",
)
TYPES = ("classic", "consumer", "registered", "share", "streams")
ASSIGNORS = ("range", "roundrobin", "sticky", "uniform")

dry_run_option = click.option("--dry-run", is_flag=True, help="Print the changes without making them.")
topics_option = some_topics_option(
    "A topic, or some of its partitions; may be repeated. Default: all that the group has committed or owns.",
    complete_topics,
)
to_option = click.option("--to", required=True, metavar="POSITION", help=TO_HELP)


@click.group(
    epilog="""\b
Examples:
  kafkalite group list
  kafkalite group describe billing
  kafkalite group describe billing audit --summary
  kafkalite group rewind billing --to 2013-07-01 --topic orders --dry-run
  kafkalite group rewind billing --to earliest --topic orders:0,2
  kafkalite group reset billing --to latest
  kafkalite group offsets export billing > billing.jsonl
  kafkalite group delete billing
  kafkalite group describe billing --zookeeper zk1:2181/kafka
  kafkalite group migrate billing --zookeeper zk1:2181/kafka --to broker --dry-run
"""
)
def command() -> None:
    """List, inspect, create, reset and delete consumer groups."""


command.add_command(offsets)


@command.command(
    name="list",
    epilog="""\b
Examples:
  kafkalite group list
  kafkalite group list --state Stable --type consumer --json
  kafkalite group list --zookeeper zk1:2181/kafka
""",
)
@names_option("--state", "states", STATES, "List only groups in this state")
@names_option("--type", "group_types", TYPES, "List only groups of this type")
@tree_options()
@cluster_options
@json_option
@command_runner
async def list_(
    states: tuple[str, ...], group_types: tuple[str, ...], tree: Tree | None, cluster: Cluster, as_json: bool
) -> None:
    """List all groups.

    With --zookeeper, STORAGE says where a group has offsets: in zookeeper, in the broker, or in both.
    """
    if tree is not None:
        from kafkalite.cli.group.zookeeper.descriptions import list_groups

        reject_options({"--state": states, "--type": group_types})
        await list_groups(tree, cluster, as_json)
        return
    async with connect(cluster) as admin:
        found = await admin.groups.list_by_broker(states=states, types=group_types, timeout=ANSWER_S)
        missing = await leaderless_partitions(admin)
    groups = sorted(each for listings in found.results.values() for each in listings)
    rows = [(each.group, each.type, each.state, each.protocol_type, each.coordinator) for each in groups]
    print_rows(LIST_COLUMNS, rows, as_json)
    fail_for_unknown({f"broker {broker}": error for broker, error in found.errors.items()}, "the list of groups")
    if missing:
        brokers = ", ".join(map(str, sorted({broker for each in missing for broker in each.replicas})))
        text = f"{len(missing)} partition(s) of {OFFSETS_TOPIC} have no leader, those of broker {brokers}"
        fail(f"groups may be missing: {text}; `kafkalite cluster status` shows what is out of reach")


async def leaderless_partitions(admin: Admin) -> list[PartitionDescription]:
    """The partitions of the topic of groups without a leader: no broker lists their groups."""
    found = await admin.topics.describe(OFFSETS_TOPIC, timeout=ANSWER_S)
    error = found.errors.get(OFFSETS_TOPIC)
    if error is None:
        return [each for each in found[OFFSETS_TOPIC].partitions if each.leader is None]
    if error.code in NO_OFFSETS_TOPIC:
        return []
    raise error


@command.command(
    epilog="""\b
Examples:
  kafkalite group describe billing
  kafkalite group describe billing --json
  kafkalite group describe billing audit --summary
  kafkalite group describe billing --zookeeper zk1:2181/kafka
"""
)
@click.argument("names", cls=Several, nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups)
@click.option("-s", "--summary", is_flag=True, help="Print one row per group: members, partitions, lag.")
@tree_options()
@cluster_options
@json_option
@command_runner
async def describe(names: tuple[str, ...], summary: bool, tree: Tree | None, cluster: Cluster, as_json: bool) -> None:
    """Show the members of groups, their committed offsets and their lag.

    LAG counts records. LAG-SECONDS is the age of the first record after the committed offset. Where a transaction is
    open, STABLE-LAG counts the records that readers of committed records get, and PENDING-OFFSET says whether the
    transaction has an offset of the group, which counts when it is committed. With --zookeeper, OWNER is the stream of
    the consumer, and CURRENT-OFFSET the larger offset of both storages; STORAGE says which one has it.
    """
    if tree is not None:
        from kafkalite.cli.group.zookeeper.descriptions import describe_groups

        await describe_groups(names, tree, cluster, summary=summary, as_json=as_json)
        return
    async with connect(cluster) as admin:
        found = await admin.groups.lag(*names, ages=True, transactions=True, timeout=ANSWER_S)
    groups = [found.results[name] for name in dict.fromkeys(names) if name in found.results]
    if summary:
        print_summary(groups, as_json)
    else:
        for group in groups:
            print_group(group, as_json)
    fail_for_unknown(unknown_lags(groups), "the lag", found.errors)


@command.command(
    epilog="""\b
Examples:
  kafkalite group create billing --topic orders --topic payments
  kafkalite group create audit --pattern '^orders.*' --assignor sticky --ephemeral
"""
)
@click.argument("group")
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="Topic that the group subscribes to; may be repeated.",
)
@click.option("--pattern", help="Regular expression (RE2) of topic names to subscribe to, instead of --topic.")
@click.option(
    "--assignor", type=AnyCaseChoice(ASSIGNORS), default="range", show_default=True, help="Partition assignor."
)
@click.option(
    "--session-timeout-ms",
    type=click.IntRange(0, 2**31 - 1),
    default=45_000,
    show_default=True,
    help="Session timeout of members, in ms; the broker allows 6000 to 1800000 by default.",
)
@click.option("--ephemeral", is_flag=True, help="Delete the group when its last member leaves.")
@cluster_options
@command_runner
async def create(
    group: str,
    topics: tuple[str, ...],
    pattern: str | None,
    assignor: str,
    session_timeout_ms: int,
    ephemeral: bool,
    cluster: Cluster,
) -> None:
    """Create GROUP as a registered group, before it has members.

    The broker assigns the partitions of such a group.
    """
    if bool(topics) == (pattern is not None):
        fail("a group subscribes to topics or to a pattern: give --topic or --pattern, not both")
    async with connect(cluster) as admin:
        try:
            coordinator = await admin.groups.create(
                group,
                topics=topics or None,
                pattern=pattern,
                assignor=assignor,
                session_timeout_ms=session_timeout_ms,
                ephemeral=ephemeral,
            )
        except KafkaError as error:
            if error.code == KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                check(error.code, "the group has another type and has members", group)
            fail_for({group: error})
    click.echo(f"created {group}, coordinated by broker {coordinator}")


@command.command(
    epilog="""\b
Examples:
  kafkalite group delete billing
  kafkalite group delete billing audit
  kafkalite group delete billing --zookeeper zk1:2181/kafka
"""
)
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups)
@tree_options()
@cluster_options
@command_runner
async def delete(names: tuple[str, ...], tree: Tree | None, cluster: Cluster) -> None:
    """Delete groups without members, and their committed offsets.

    With --zookeeper, the nodes of groups without registered consumers.
    """
    if tree is not None:
        from kafkalite.cli.group.zookeeper.changes import delete_groups

        await delete_groups(names, tree)
        return
    async with connect(cluster) as admin:
        outcomes = await admin.groups.delete(*names)
    for name in outcomes.results:
        click.echo(f"deleted {name}")
    fail_for(outcomes.errors)


@command.command(
    epilog="""\b
Examples:
  kafkalite group rewind billing --to 2013-07-01 --topic orders --dry-run
  kafkalite group rewind billing --to earliest --topic orders:0,2
  kafkalite group rewind billing --to -100                           the last 100 offsets of each partition
  kafkalite group rewind billing --to @1372636800000
"""
)
@click.argument("group", shell_complete=complete_groups)
@to_option
@topics_option
@dry_run_option
@cluster_options
@json_option
@command_runner
async def rewind(group: str, to: str, topics: tuple[str, ...], dry_run: bool, cluster: Cluster, as_json: bool) -> None:
    """Move the committed offsets of GROUP, also while it has members.

    Only kafkalite moves a group with members: after their next heartbeats
    they read from the new position, without a restart.
    """
    async with connect(cluster) as admin:
        try:
            found = (await admin.groups.describe(group))[group]
        except GroupIdNotFoundError:
            fail(f"{group}: the group does not exist (GROUP_ID_NOT_FOUND); kafkalite group reset creates one")
        except KafkaError as error:
            fail_for({group: error})
        moves = await plan_moves(admin, group, to, topics, found.owners)
        moved = Moved(moves, [])
        if not dry_run:
            moved = await (commit_moves if found.state == EMPTY else rewind_with_members)(admin, group, moves)
    print_moves(group, moved, as_json, dry_run)


@command.command(
    epilog="""\b
Examples:
  kafkalite group reset billing --to latest --topic orders
  kafkalite group reset billing --to 42 --topic orders:0
  kafkalite group reset billing --to earliest --zookeeper zk1:2181/kafka
"""
)
@click.argument("group", shell_complete=complete_groups)
@to_option
@topics_option
@dry_run_option
@tree_options()
@cluster_options
@json_option
@command_runner
async def reset(
    group: str,
    to: str,
    topics: tuple[str, ...],
    dry_run: bool,
    tree: Tree | None,
    cluster: Cluster,
    as_json: bool,
) -> None:
    """Set the committed offsets of GROUP, which must have no members.

    Creates the group if it does not exist. With --zookeeper, the group must have no registered consumers.
    """
    if tree is not None:
        from kafkalite.cli.group.zookeeper.changes import reset_group

        await reset_group(group, to, topics, tree, cluster, dry_run=dry_run, as_json=as_json)
        return
    async with connect(cluster) as admin:
        await require_empty(admin, group)
        moves = await plan_moves(admin, group, to, topics)
        moved = Moved(moves, []) if dry_run else await commit_moves(admin, group, moves)
    print_moves(group, moved, as_json, dry_run)


@command.command(
    epilog="""\b
Examples:
  kafkalite group verify --zookeeper zk1:2181/kafka            all groups with registered consumers
  kafkalite group verify billing --zookeeper zk1:2181/kafka
  kafkalite group verify billing --zookeeper zk1:2181/kafka --consumers 3 --wait 60
"""
)
@click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=complete_groups)
@click.option("--consumers", type=click.IntRange(min=1), metavar="N", help="So many consumers must be registered.")
@click.option(
    "--wait",
    "wait_s",
    type=Seconds(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Repeat the check until it succeeds, at most so long.",
)
@tree_options(required=True)
@json_option
@command_runner
async def verify(names: tuple[str, ...], consumers: int | None, wait_s: float, tree: Tree, as_json: bool) -> None:
    """Verify that each partition has one live owner, in ZooKeeper.

    Partitions are those of the topics that registered consumers read. An owner is live if its consumer is registered by
    the session that created the owner's node. During a rebalance partitions have no owner. The exit code is 1 if a
    partition does not have one live owner, with a line for each, and 2 if a node could not be read.
    """
    from kafkalite.cli.group.zookeeper.verification import Expected, verify_groups

    await verify_groups(names, Expected(consumers, wait_s), tree, as_json)


@command.command(
    epilog="""\b
Examples:
  kafkalite group migrate billing --zookeeper zk1:2181/kafka --to broker --dry-run
  kafkalite group migrate billing --zookeeper zk1:2181/kafka --to broker
  kafkalite group migrate billing --zookeeper zk1:2181/kafka --to broker --consumers-commit-to-both
  kafkalite group migrate billing --zookeeper zk1:2181/kafka --to zookeeper --if-ahead overwrite
"""
)
@click.argument("group", shell_complete=complete_groups)
@tree_options(required=True)
@click.option(
    "--to", required=True, type=AnyCaseChoice(("broker", "zookeeper")), help="The storage that receives the offsets."
)
@click.option(
    "--consumers-commit-to-both",
    "commit_to_both",
    is_flag=True,
    help="You confirm that every registered consumer has offsets.storage=kafka and dual.commit.enabled=true.",
)
@click.option(
    "--if-ahead",
    type=AnyCaseChoice(("keep", "overwrite")),
    help="What to do with larger offsets of the target. Default: nothing is copied if there are any.",
)
@dry_run_option
@cluster_options
@json_option
@command_runner
async def migrate(
    group: str,
    tree: Tree,
    to: str,
    commit_to_both: bool,
    if_ahead: str | None,
    dry_run: bool,
    cluster: Cluster,
    as_json: bool,
) -> None:
    """Copy the offsets of GROUP from ZooKeeper to the broker, or back.

    Prints both offsets of each partition, their difference, and the registered consumers; copies those of the source,
    and reads them back. Nothing is copied while consumers are registered that commit to the source alone. A repetition
    copies what is missing. Stop the consumers, or restart them with dual commit: the documentation on ZooKeeper-era
    consumers has the steps.
    """
    from kafkalite_sdk.zk.offsets.migration import Confirmed, Storage

    from kafkalite.cli.group.zookeeper.migration import migrate_group

    confirmed = Confirmed(commit_to_both, if_ahead or "")
    await migrate_group(group, Storage(to), confirmed, tree, cluster, dry_run=dry_run, as_json=as_json)
