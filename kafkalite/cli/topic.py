"""`kafkalite topic`: create, list, describe, alter and delete topics."""

import json

import click

from kafkalite.cli.client_options import (
    bootstrap_option,
    check,
    column_key,
    command_runner,
    json_option,
    next_steps,
    print_rows,
    refusal,
)
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import fail
from kafkalite.model import uuid_text
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse

TOPIC_RESOURCE = 2
SOURCE_TOPIC = 1
SET, DELETE = 0, 1
TIMEOUT_MS = 30_000
# The column names of kafka-topics --describe.
LIST_COLUMNS = ("Topic", "PartitionCount", "ReplicationFactor", "TopicId")
PARTITION_COLUMNS = ("Partition", "Leader", "LeaderEpoch", "Replicas", "Isr", "OfflineReplicas")

NewTopic = CreateTopicsRequest.CreatableTopic
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


@click.group(
    epilog="""\b
Examples:
  kafkalite topic create orders --partitions 6 --config retention.ms=86400000
  kafkalite topic list
  kafkalite topic describe orders
  kafkalite topic alter orders --partitions 12 --config cleanup.policy=compact --unset retention.ms
  kafkalite topic delete orders
"""
)
def command() -> None:
    """Create, list, describe, alter and delete topics."""


@command.command(
    epilog="""\b
Examples:
  kafkalite topic create orders
  kafkalite topic create orders --partitions 6 --config retention.ms=86400000 --config compression.type=zstd
"""
)
@click.argument("topic")
@click.option("-p", "--partitions", type=int, default=-1, help="Number of partitions; default: num.partitions.")
@click.option(
    "-r",
    "--replication-factor",
    type=int,
    default=-1,
    help="Replicas of each partition; default: default.replication.factor of the broker.",
)
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Topic config; may be repeated.")
@bootstrap_option
@command_runner
async def create(
    topic: str, partitions: int, replication_factor: int, configs: tuple[str, ...], bootstrap: str
) -> None:
    """Create TOPIC."""
    new = NewTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[NewTopic.CreatableTopicConfig(name=key, value=value) for key, value in map(key_value, configs)],
    )
    async with connect(bootstrap) as peer:
        answer = await peer.call(CreateTopicsRequest(topics=[new], timeout_ms=TIMEOUT_MS, validate_only=False))
    (created,) = answer.topics
    check(created.error_code, created.error_message, topic)
    click.echo(f"created {topic} with {created.num_partitions} partition(s)")


@command.command(
    name="list",
    epilog="""\b
Examples:
  kafkalite topic list
  kafkalite topic list --json | jq -r .topic
""",
)
@bootstrap_option
@json_option
@command_runner
async def list_(bootstrap: str, as_json: bool) -> None:
    """List all topics."""
    async with connect(bootstrap) as peer:
        answer = await peer.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    rows = [
        (
            topic.name,
            len(topic.partitions),
            max((len(p.replica_nodes) for p in topic.partitions), default=0),
            uuid_text(topic.topic_id),
        )
        for topic in sorted(answer.topics, key=lambda topic: topic.name or "")
    ]
    print_rows(LIST_COLUMNS, rows, as_json)


@command.command(
    epilog="""\b
Examples:
  kafkalite topic describe orders
  kafkalite topic describe orders --json | jq .configs
"""
)
@click.argument("topic")
@bootstrap_option
@json_option
@command_runner
async def describe(topic: str, bootstrap: str, as_json: bool) -> None:
    """Show the partitions of TOPIC and its own configs."""
    async with connect(bootstrap) as peer:
        described = await describe_topic(peer, topic)
        configs = await own_configs(peer, topic)
    rows = [
        (p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes, p.offline_replicas)
        for p in sorted(described.partitions, key=lambda p: p.partition_index)
    ]
    if as_json:
        partitions = [dict(zip(map(column_key, PARTITION_COLUMNS), row, strict=True)) for row in rows]
        about = {"topic": topic, "topic_id": uuid_text(described.topic_id), "configs": dict(configs)}
        click.echo(json.dumps({**about, "partitions": partitions}))
        return
    factor = max((len(p.replica_nodes) for p in described.partitions), default=0)
    head = f"Topic: {topic}  TopicId: {uuid_text(described.topic_id)}"
    click.echo(f"{head}  PartitionCount: {len(rows)}  ReplicationFactor: {factor}")
    for key, value in configs:
        click.echo(f"  {key}={value}")
    print_rows(PARTITION_COLUMNS, rows, as_json=False)


@command.command(
    epilog="""\b
Examples:
  kafkalite topic alter orders --partitions 12
  kafkalite topic alter orders --config cleanup.policy=compact --unset retention.ms
"""
)
@click.argument("topic")
@click.option("-p", "--partitions", type=int, help="New number of partitions; it cannot be reduced.")
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a config; may be repeated.")
@click.option("-u", "--unset", multiple=True, metavar="KEY", help="Reset a config to its default; may be repeated.")
@bootstrap_option
@command_runner
async def alter(
    topic: str, partitions: int | None, configs: tuple[str, ...], unset: tuple[str, ...], bootstrap: str
) -> None:
    """Change the number of partitions of TOPIC or its configs."""
    if partitions is None and not configs and not unset:
        fail("nothing to alter: give --partitions, --config or --unset")
    changes = [change(key, SET, value) for key, value in map(key_value, configs)]
    changes += [change(key, DELETE, None) for key in unset]
    async with connect(bootstrap) as peer:
        if changes:
            await alter_configs(peer, topic, changes)
        if partitions is not None:
            await grow(peer, topic, partitions, "; the configs were altered" if changes else "")
    click.echo(f"altered {topic}")


@command.command(
    epilog="""\b
Examples:
  kafkalite topic delete orders
  kafkalite topic delete orders payments
"""
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@bootstrap_option
@command_runner
async def delete(topics: tuple[str, ...], bootstrap: str) -> None:
    """Delete topics and all their records."""
    states = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=bytes(16)) for name in topics]
    async with connect(bootstrap) as peer:
        request = DeleteTopicsRequest(topics=states, topic_names=list(topics), timeout_ms=TIMEOUT_MS)
        answer = await peer.call(request)
    wrong, codes = [], []
    for deleted in answer.responses:
        if deleted.error_code:
            wrong.append(refusal(deleted.error_code, deleted.error_message, deleted.name or "topic"))
            codes.append(deleted.error_code)
        else:
            click.echo(f"deleted {deleted.name}")
    if wrong:
        fail("; ".join(wrong) + next_steps(codes))


def key_value(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        fail(f"{text!r} is not a config; write KEY=VALUE, for example retention.ms=86400000")
    return key, value


def change(key: str, operation: int, value: str | None) -> Resource.AlterableConfig:
    return Resource.AlterableConfig(name=key, config_operation=operation, value=value)


async def describe_topic(peer: ClientConnection, topic: str) -> MetadataResponse.MetadataResponseTopic:
    """Return the metadata of the topic; ends the command if the topic does not exist."""
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    answer = await peer.call(MetadataRequest(topics=[wanted], allow_auto_topic_creation=False))
    described: MetadataResponse.MetadataResponseTopic
    (described,) = answer.topics
    check(described.error_code, None, topic)
    return described


async def own_configs(peer: ClientConnection, topic: str) -> list[tuple[str, str | None]]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
    )
    answer = await peer.call(DescribeConfigsRequest(resources=[resource]))
    (result,) = answer.results
    check(result.error_code, result.error_message, topic)
    return [(config.name, config.value) for config in result.configs if config.config_source == SOURCE_TOPIC]


async def alter_configs(peer: ClientConnection, topic: str, changes: list[Resource.AlterableConfig]) -> None:
    resource = Resource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=changes)
    answer = await peer.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    (result,) = answer.responses
    check(result.error_code, result.error_message, topic)


async def grow(peer: ClientConnection, topic: str, partitions: int, done: str) -> None:
    """Add partitions up to this number; ends the command on an error. `done`: earlier changes, for its text."""
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
    answer = await peer.call(CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=False))
    (result,) = answer.results
    if result.error_code:
        fail(refusal(result.error_code, result.error_message, topic) + next_steps([result.error_code]) + done)
