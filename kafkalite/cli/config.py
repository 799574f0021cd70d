"""`kafkalite config`: effective settings of brokers, topics and groups, and dynamic changes."""

import click
from kafkalite_sdk.admin import Config, Resource, ResourceType

from kafkalite.cli.client_options import (
    Cluster,
    cluster_options,
    command_runner,
    fail_for,
    json_option,
    key_value,
    print_rows,
)
from kafkalite.cli.connection import connect, require_brokers
from kafkalite.cli.failure import Failure, fail

COLUMNS = ("KEY", "VALUE", "SOURCE", "READ-ONLY", "SENSITIVE")
RESOURCES = "broker:ID, brokers (the default of all brokers), broker-logger:ID, topic:NAME or group:NAME"


@click.group(
    epilog="""\b
Examples:
  kafkalite config describe broker:1
  kafkalite config describe broker:1 num.partitions log.retention.ms --json
  kafkalite config describe topic:orders --all
  kafkalite config alter brokers --set log.retention.ms=86400000
  kafkalite config alter broker:1 --unset log.retention.ms
  kafkalite config alter broker-logger:1 --set kafkalite.requests=DEBUG
"""
)
def command() -> None:
    """Show and change the settings of brokers, topics and groups."""


@command.command(
    epilog="""\b
Examples:
  kafkalite config describe broker:1
  kafkalite config describe topic:orders --all
  kafkalite config describe broker-logger:1
  kafkalite config describe broker:1 num.partitions --json
"""
)
@click.argument("resource")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("-a", "--all", "every", is_flag=True, help="Print defaults, too. Default: only changed settings.")
@cluster_options
@json_option
@command_runner
async def describe(resource: str, keys: tuple[str, ...], every: bool, cluster: Cluster, as_json: bool) -> None:
    """Show the effective settings of RESOURCE.

    RESOURCE is broker:ID, brokers (the default of all brokers), broker-logger:ID (the levels of its loggers),
    topic:NAME or group:NAME. SOURCE is where the value comes from, such as STATIC_BROKER (the configuration of the
    broker) or DEFAULT. Values of sensitive settings are not shown.
    """
    named = parse_resource(resource)
    async with connect(cluster) as admin:
        await require_brokers(admin, *broker_ids(named))
        outcomes = await admin.configs.describe(named, names=keys or None)
    if (error := outcomes.errors.get(named)) is not None:
        fail_for({resource: error})
    found = outcomes[named]
    if missing := [key for key in keys if key not in found]:
        fail(f"{resource} has no setting {', '.join(missing)}; `kafkalite config describe {resource} --all` lists them")
    rows = [row_of(found[key]) for key in sorted(found) if every or keys or not found[key].default]
    print_rows(COLUMNS, rows if as_json else [(*row[:3], *map(yes_or_no, row[3:])) for row in rows], as_json)


def row_of(config: Config) -> tuple[object, ...]:
    """A setting in the order of COLUMNS."""
    return (config.name, config.value, config.source.name, config.read_only, config.sensitive)


def yes_or_no(flag: object) -> str:
    return "yes" if flag else "no"


@command.command(
    epilog="""\b
Examples:
  kafkalite config alter broker:1 --set log.cleaner.threads=2
  kafkalite config alter brokers --set log.retention.ms=86400000 --unset log.segment.bytes
  kafkalite config alter topic:orders --set retention.ms=86400000 --dry-run
  kafkalite config alter broker-logger:1 --set root=DEBUG
  kafkalite config alter broker-logger:1 --set root=INFO --unset kafkalite.requests
"""
)
@click.argument("resource")
@click.option("-s", "--set", "given", multiple=True, metavar="KEY=VALUE", help="Change a setting; may be repeated.")
@click.option("-u", "--unset", multiple=True, metavar="KEY", help="Reset a setting to its default; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Let the broker check the changes without making them.")
@cluster_options
@command_runner
async def alter(resource: str, given: tuple[str, ...], unset: tuple[str, ...], dry_run: bool, cluster: Cluster) -> None:
    """Change settings of RESOURCE.

    RESOURCE is broker:ID, brokers (the default of all brokers), topic:NAME or group:NAME. The changes are
    valid at once, and survive a restart. Those of broker-logger:ID are levels (TRACE, DEBUG, INFO, WARN, ERROR, FATAL)
    of loggers, of all by `root`, until the broker ends.
    """
    if not given and not unset:
        fail("nothing to alter: give --set or --unset")
    named = parse_resource(resource)
    changes: dict[str, str | None] = {**dict(map(key_value, given)), **dict.fromkeys(unset)}
    async with connect(cluster) as admin:
        await require_brokers(admin, *broker_ids(named))
        outcomes = await admin.configs.alter({named: changes}, validate_only=dry_run)
    if (error := outcomes.errors.get(named)) is not None:
        fail_for({resource: error})
    if dry_run:
        click.echo("nothing was changed: --dry-run", err=True)
    else:
        click.echo(f"altered {resource}")


def broker_ids(resource: Resource) -> list[int]:
    """Return the broker that a resource names, if it is one."""
    of_broker = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
    return [int(resource.name)] if of_broker and resource.name else []


def parse_resource(text: str) -> Resource:
    """Return the resource with this name; ends the command if it is not valid."""
    kind, _, name = text.partition(":")
    if text == "brokers":
        return Resource.broker(None)
    if kind == "broker" and name.isascii() and name.isdecimal():
        return Resource.broker(int(name))
    if kind == "broker-logger" and name.isascii() and name.isdecimal():
        return Resource.broker_logger(int(name))
    if kind in ("topic", "group") and name:
        return Resource.topic(name) if kind == "topic" else Resource.group(name)
    raise Failure(f"{text!r} is not a resource; write {RESOURCES}")
