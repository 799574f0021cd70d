"""`kafkalite topic`: create, list, describe, alter and delete topics."""

import click
from kafkalite_sdk import Admin

from kafkalite.cli.client_options import (
    NEXT_STEPS,
    POSITIONS,
    Cluster,
    Several,
    cluster_options,
    command_runner,
    fail_for,
    fail_for_unknown,
    is_default,
    json_option,
    key_value,
    print_rows,
)
from kafkalite.cli.completion import complete_topics
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import PartitionSubject, fail
from kafkalite.errors import KafkaErrorCode

# The column names of kafka-topics --describe.
LIST_COLUMNS = ("Topic", "PartitionCount", "ReplicationFactor", "TopicId")
DELETED_COLUMNS = ("TOPIC", "PARTITION", "PRIOR-START", "NEW-START")
EXISTS = KafkaErrorCode.TOPIC_ALREADY_EXISTS


@click.group(
    epilog="""\b
Examples:
  kafkalite topic create orders --partitions 6 --config retention.ms=86400000
  kafkalite topic list
  kafkalite topic describe orders
  kafkalite topic alter orders --partitions 12 --config cleanup.policy=compact --unset retention.ms
  kafkalite topic delete-records orders --before 2013-07-01 --dry-run
  kafkalite topic verify orders
  kafkalite topic delete orders
"""
)
def command() -> None:
    """Create, list, describe, alter, verify and delete topics."""


@command.command(
    epilog="""\b
Examples:
  kafkalite topic create orders
  kafkalite topic create orders --partitions 6 --config retention.ms=86400000 --config compression.type=zstd
  kafkalite topic create orders payments --if-not-exists
"""
)
@click.argument("topics", cls=Several, nargs=-1, required=True, metavar="TOPIC...")
@click.option("-p", "--partitions", type=int, default=-1, help="Number of partitions; default: num.partitions.")
@click.option(
    "-r",
    "--replication-factor",
    type=int,
    default=-1,
    help="Replicas of each partition; default: default.replication.factor of the broker.",
)
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Topic config; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Leave topics that exist as they are, without an error.")
@cluster_options
@command_runner
async def create(
    topics: tuple[str, ...],
    partitions: int,
    replication_factor: int,
    configs: tuple[str, ...],
    if_not_exists: bool,
    cluster: Cluster,
) -> None:
    """Create topics."""
    from kafkalite_sdk.admin import NewTopic

    check_number("--partitions", partitions)
    check_number("--replication-factor", replication_factor)
    own = dict(map(key_value, configs))
    async with connect(cluster) as admin:
        outcomes = await admin.topics.create(
            *(NewTopic(name, partitions, replication_factor, configs=own) for name in topics)
        )
    for name, created in outcomes.results.items():
        click.echo(f"created {name} with {created.partitions} partition(s)")
    errors = outcomes.errors
    for name in [name for name, error in errors.items() if if_not_exists and error.code == EXISTS]:
        click.echo(f"{name} exists")
        del errors[name]
    steps = NEXT_STEPS | {EXISTS: "--if-not-exists leaves a topic that exists as it is"}
    if not is_default("replication_factor"):
        steps[KafkaErrorCode.INVALID_REPLICATION_FACTOR] = "give another -r"
    fail_for(errors, steps=steps)


@command.command(
    name="list",
    epilog="""\b
Examples:
  kafkalite topic list
  kafkalite topic list --json | jq -r .topic
""",
)
@cluster_options
@json_option
@command_runner
async def list_(cluster: Cluster, as_json: bool) -> None:
    """List all topics."""
    async with connect(cluster) as admin:
        topics = await admin.topics.list()
    rows = [(each.name, len(each.partitions), each.replication_factor, each.topic_id) for each in topics]
    print_rows(LIST_COLUMNS, rows, as_json)


@command.command(
    epilog="""\b
Examples:
  kafkalite topic describe orders
  kafkalite topic describe orders --json | jq .configs
  kafkalite topic describe orders payments --offsets --all-configs
  kafkalite topic describe --under-min-isr                     of all topics
"""
)
@click.argument("topics", cls=Several, nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
@click.option(
    "-o",
    "--offsets",
    is_flag=True,
    help="Show offsets, size and oldest open transaction of each partition.",
)
@click.option("-a", "--all-configs", is_flag=True, help="Show all effective configs. Default: only those of the topic.")
@click.option("--under-replicated", is_flag=True, help="Only partitions with replicas that are not in sync.")
@click.option("--under-min-isr", is_flag=True, help="Only partitions that reject acks=all: too few in-sync replicas.")
@click.option("--at-min-isr", is_flag=True, help="Only partitions that reject acks=all after one more failure.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@cluster_options
@json_option
@command_runner
async def describe(
    topics: tuple[str, ...], offsets: bool, all_configs: bool, cluster: Cluster, as_json: bool, **problems: bool
) -> None:
    """Show topics with their configs, or what needs attention.

    LogEndOffset is the high watermark. Readers of committed records stop at LastStableOffset, the first record of the
    oldest open transaction. The size is that of the largest replica, in bytes.
    """
    from kafkalite.cli.topic_descriptions import describe_topics, print_topic

    wanted = [name.replace("_", "-") for name, given in problems.items() if given]
    if wanted:
        await describe_problems(topics, wanted, cluster, as_json)
        return
    if not topics:
        fail("give a TOPIC, or --under-replicated, --under-min-isr, --at-min-isr or --unavailable for all topics")
    async with connect(cluster) as admin:
        found = await describe_topics(admin, topics, offsets=offsets, all_configs=all_configs)
    for topic in found.topics:
        print_topic(topic, as_json)
    fail_for_unknown(found.unreached, "an offset, the size or the transaction")


async def describe_problems(topics: tuple[str, ...], names: list[str], cluster: Cluster, as_json: bool) -> None:
    """Print the partitions with one of the problems of these names; without topics, those of all topics."""
    from kafkalite.cli.replica_problems import Problem, print_problems, read_minimums

    async with connect(cluster) as admin:
        if topics:
            outcomes = await admin.topics.describe(*topics)
            fail_for(outcomes.errors)
            found = tuple(outcomes.values())
        else:
            found = await admin.topics.list()
        minimums = await read_minimums(admin, [each.name for each in found])
    print_problems(found, minimums, [Problem(name) for name in names], as_json)


@command.command(
    name="elect-leaders",
    epilog="""\b
Examples:
  kafkalite topic elect-leaders                                the preferred leaders of all topics
  kafkalite topic elect-leaders orders:0,2
  kafkalite topic elect-leaders orders:0 --unclean             loses records: read `docs/cluster.md` before
""",
)
@click.argument("topics", nargs=-1, metavar="[TOPIC[:P,P...]]...", shell_complete=complete_topics)
@click.option(
    "--unclean", is_flag=True, help="Elect a replica that is not in sync where no other is alive: records are lost."
)
@cluster_options
@command_runner
async def elect_leaders(topics: tuple[str, ...], unclean: bool, cluster: Cluster) -> None:
    """Let the first replica of each partition lead again."""
    from kafkalite_sdk.admin import Election

    from kafkalite.cli.positions import chosen_partitions, parse_topics

    if unclean and not topics:
        fail("--unclean needs the partitions, for example orders:0: an election of it loses records")
    async with connect(cluster) as admin:
        wanted = parse_topics(topics or [each.name for each in await admin.topics.list()])
        chosen = await chosen_partitions(admin, wanted)
        election = Election.UNCLEAN if unclean else Election.PREFERRED
        outcomes = await admin.partitions.elect_leaders(chosen, election=election)
    errors = outcomes.errors
    unneeded = [each for each, error in errors.items() if error.code == KafkaErrorCode.ELECTION_NOT_NEEDED]
    for partition in outcomes.results:
        click.echo(f"elected a leader of {partition}")
    click.echo(f"{len(unneeded)} partition(s) have this leader already")
    fail_for({PartitionSubject.of(each): error for each, error in errors.items() if each not in unneeded})


@command.command(
    epilog="""\b
Examples:
  kafkalite topic alter orders --partitions 12
  kafkalite topic alter orders --config cleanup.policy=compact --unset retention.ms
"""
)
@click.argument("topic", shell_complete=complete_topics)
@click.option("-p", "--partitions", type=int, help="New number of partitions; it cannot be reduced.")
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a config; may be repeated.")
@click.option("-u", "--unset", multiple=True, metavar="KEY", help="Reset a config to its default; may be repeated.")
@cluster_options
@command_runner
async def alter(
    topic: str, partitions: int | None, configs: tuple[str, ...], unset: tuple[str, ...], cluster: Cluster
) -> None:
    """Change the number of partitions of TOPIC or its configs."""
    if partitions is None and not configs and not unset:
        fail("nothing to alter: give --partitions, --config or --unset")
    if partitions is not None:
        check_number("--partitions", partitions)
    changes: dict[str, str | None] = {**dict(map(key_value, configs)), **dict.fromkeys(unset)}
    async with connect(cluster) as admin:
        if changes:
            await alter_configs(admin, topic, changes)
        if partitions is not None:
            grown = await admin.topics.create_partitions({topic: partitions})
            fail_for(grown.errors, "; the configs were altered" if changes else "")
    click.echo(f"altered {topic}")


@command.command(
    name="delete-records",
    epilog="""\b
Examples:
  kafkalite topic delete-records orders --before 2013-07-01 --dry-run
  kafkalite topic delete-records orders:0,2 --before 5000
  kafkalite topic delete-records orders --before end           all records
""",
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:P,P...]...", shell_complete=complete_topics)
@click.option("--before", required=True, metavar="POSITION", help=f"The first record to keep: {POSITIONS}.")
@click.option("--dry-run", is_flag=True, help="Print the new log start offsets without deleting records.")
@cluster_options
@json_option
@command_runner
async def delete_records(topics: tuple[str, ...], before: str, dry_run: bool, cluster: Cluster, as_json: bool) -> None:
    """Delete the records of partitions before a position."""
    from kafkalite.cli.positions import (
        EARLIEST,
        LATEST,
        chosen_partitions,
        offsets,
        parse_to,
        parse_topics,
        require_in_logs,
    )

    position, wanted = parse_to(before), parse_topics(topics)
    async with connect(cluster) as admin:
        chosen = await chosen_partitions(admin, wanted)
        starts = await offsets(admin, chosen, EARLIEST)
        if position.offset is not None:
            require_in_logs(position.offset, await offsets(admin, chosen, LATEST))
        targets = await position.found(admin, chosen)
        deleted, errors = targets, {}
        if not dry_run:
            outcomes = await admin.partitions.delete_records(targets)
            deleted, errors = outcomes.results, outcomes.errors
    print_rows(DELETED_COLUMNS, [(*each, starts[each], start) for each, start in deleted.items()], as_json)
    fail_for({PartitionSubject.of(each): error for each, error in errors.items()})
    if dry_run:
        click.echo("nothing was deleted: --dry-run", err=True)


@command.command(
    epilog="""\b
Examples:
  kafkalite topic verify                                       all topics
  kafkalite topic verify orders:0,2 payments
"""
)
@click.argument("topics", nargs=-1, metavar="[TOPIC[:P,P...]]...", shell_complete=complete_topics)
@cluster_options
@json_option
@command_runner
async def verify(topics: tuple[str, ...], cluster: Cluster, as_json: bool) -> None:
    """Compare the replicas of partitions.

    All batches below the high watermark are compared, with their CRCs; of compacted topics the last value of each key.
    All records are read from each replica. The exit code is 1 if replicas differ, with a line for each difference, and
    2 if a replica could not be read.
    """
    from kafkalite.cli.verify.report import report
    from kafkalite.cli.verify.verification import verify_topics

    report(await verify_topics(cluster, topics), as_json)


@command.command(
    epilog="""\b
Examples:
  kafkalite topic delete orders
  kafkalite topic delete orders payments
"""
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@cluster_options
@command_runner
async def delete(topics: tuple[str, ...], cluster: Cluster) -> None:
    """Delete topics and all their records."""
    async with connect(cluster) as admin:
        outcomes = await admin.topics.delete(*topics)
    for name in outcomes.results:
        click.echo(f"deleted {name}")
    fail_for(outcomes.errors)


def check_number(option: str, number: int) -> None:
    """End the command if a number of partitions or replicas is given, and is not above 0."""
    if number < 1 and not is_default(option.removeprefix("--").replace("-", "_")):
        fail(f"{option} is {number}, expected a number above 0")


async def alter_configs(admin: Admin, topic: str, changes: dict[str, str | None]) -> None:
    """Set configs of a topic; None = reset to the default."""
    from kafkalite_sdk.admin import Resource

    from kafkalite.cli.topic_descriptions import with_topic_right

    outcomes = await admin.configs.alter({Resource.topic(topic): changes})
    errors = {each.name: with_topic_right(error, each.name, "alter-configs") for each, error in outcomes.errors.items()}
    fail_for(errors)
