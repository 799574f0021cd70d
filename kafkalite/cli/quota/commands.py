"""`kafkalite quota`: list, add and remove client quotas."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kafkalite.cli.client_options import (
    Cluster,
    cluster_options,
    command_runner,
    fail_for,
    json_option,
    print_rows,
)
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import fail

if TYPE_CHECKING:
    from kafkalite_sdk.admin import QuotaEntity

COLUMNS = ("ENTITY", "QUOTA", "VALUE")
CLIENT_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_KEYS = ("connection_creation_rate",)
KEYS = (*CLIENT_KEYS, *IP_KEYS)
TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}
DEFAULT_TEXT = "<default>"


def entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name an entity."""
    options = [
        click.option("-u", "--user", metavar="NAME", help="A user: the name of a principal, as alice."),
        click.option("--default-user", is_flag=True, help="Users without a quota of their own."),
        click.option("-c", "--client-id", metavar="ID", help="A client id; with a user: of this user."),
        click.option("--default-client-id", is_flag=True, help="Client ids without a quota of their own."),
        click.option("--ip", metavar="ADDRESS", help="An address of clients."),
        click.option("--default-ip", is_flag=True, help="Addresses without a quota of their own."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group(
    epilog="""\b
Examples:
  kafkalite quota add --user alice producer_byte_rate=1048576
  kafkalite quota add --default-user --client-id app request_percentage=50
  kafkalite quota add --ip 10.0.0.7 connection_creation_rate=10
  kafkalite quota list
  kafkalite quota remove --user alice producer_byte_rate
"""
)
def command() -> None:
    """List, add and remove client quotas: how much users, client ids and addresses may send and receive."""


@command.command(
    name="list",
    epilog="""\b
Examples:
  kafkalite quota list
  kafkalite quota list --user alice --json          those of alice, and of her client ids
  kafkalite quota list --default-user
""",
)
@entity_options
@cluster_options
@json_option
@command_runner
async def list_(cluster: Cluster, as_json: bool, **named: Any) -> None:
    """List quotas: all, or those of entities with these names.

    With --json an entity is an object of its types (user, client-id, ip); null = the default.
    """
    async with connect(cluster) as admin:
        found = await admin.quotas.describe(names_of(named) or None)
    rows = [
        (dict(entity.names) if as_json else describe(entity), key, whole(value))
        for entity, values in sorted(found.items(), key=lambda pair: describe(pair[0]))
        for key, value in sorted(values.items())
    ]
    print_rows(COLUMNS, rows, as_json)


@command.command(
    epilog="""\b
Examples:
  kafkalite quota add --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152
  kafkalite quota add --user alice --client-id app request_percentage=12.5
  kafkalite quota add --default-client-id controller_mutation_rate=10
  kafkalite quota add --ip 10.0.0.7 connection_creation_rate=10
"""
)
@click.argument("quotas", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@entity_options
@cluster_options
@command_runner
async def add(quotas: tuple[str, ...], cluster: Cluster, **named: Any) -> None:
    """Add quotas, or replace their values; others of the entity stay.

    producer_byte_rate and consumer_byte_rate are bytes per second, request_percentage is the time of a broker's event
    loop, controller_mutation_rate created and deleted partitions per second, connection_creation_rate connections per
    second. Each applies at each broker.
    """
    await change(cluster, entity_of(named), dict(map(parse, quotas)), "added")


@command.command(
    epilog="""\b
Examples:
  kafkalite quota remove --user alice producer_byte_rate
  kafkalite quota remove --ip 10.0.0.7                     all of this address
"""
)
@click.argument("keys", nargs=-1, metavar="[QUOTA...]")
@entity_options
@cluster_options
@command_runner
async def remove(keys: tuple[str, ...], cluster: Cluster, **named: Any) -> None:
    """Remove quotas of an entity; without QUOTA all of them."""
    for key in keys:
        known(key)
    entity = entity_of(named)
    if keys:
        await change(cluster, entity, dict.fromkeys(keys), "removed")
    else:
        await store(cluster, entity, dict.fromkeys(keys_of(entity)))
        click.echo(f"removed: all quotas of {describe(entity)}")


async def change(cluster: Cluster, entity: "QuotaEntity", values: dict[str, float | None], what: str) -> None:
    """Change quotas, and print them."""
    await store(cluster, entity, values)
    for key, value in values.items():
        text = key if value is None else f"{key}={whole(value)}"
        click.echo(f"{what}: {text} of {describe(entity)}")


async def store(cluster: Cluster, entity: "QuotaEntity", values: dict[str, float | None]) -> None:
    """Change quotas, or end the command; None = remove."""
    async with connect(cluster) as admin:
        outcomes = await admin.quotas.alter({entity: values})
    fail_for({describe(each): error for each, error in outcomes.errors.items()})


def names_of(named: dict[str, Any]) -> dict[str, str | None]:
    """Return the names that options give, by type; None = the default."""
    names: dict[str, str | None] = {}
    for option, entity_type in TYPES.items():
        name, is_default = named[option], named[f"default_{option}"]
        if name is not None and is_default:
            fail(f"give either --{entity_type} or --default-{entity_type}")
        if name is not None or is_default:
            names[entity_type] = name
    if "ip" in names and len(names) > 1:
        fail("an address has quotas of its own: give --ip without --user and --client-id")
    return names


def entity_of(named: dict[str, Any]) -> "QuotaEntity":
    """Return the entity that options name, or end the command."""
    from kafkalite_sdk.admin import QuotaEntity

    names = names_of(named)
    if not names:
        fail("give an entity: --user, --client-id, both, or --ip; --default-user and so on for all others")
    return QuotaEntity.of(names)


def keys_of(entity: "QuotaEntity") -> tuple[str, ...]:
    """Return the quotas that an entity can have."""
    return IP_KEYS if entity.names[0][0] == "ip" else CLIENT_KEYS


def parse(text: str) -> tuple[str, float]:
    """Return key and value of QUOTA=VALUE, or end the command."""
    key, _, value = text.partition("=")
    try:
        parsed = float(value)
    except ValueError:
        parsed = math.nan
    if not 0 < parsed < math.inf:
        fail(f"{text!r}: expected {known(key)}=NUMBER with a number above 0")
    return known(key), parsed


def known(key: str) -> str:
    """Return a key that exists, or end the command."""
    if key not in KEYS:
        fail(f"unknown quota {key!r}, expected one of {', '.join(KEYS)}")
    return key


def whole(value: float) -> float:
    """Return a value, without the fraction of whole numbers."""
    return int(value) if value.is_integer() else value


def describe(entity: "QuotaEntity") -> str:
    """Return an entity as text, such as `user alice, client-id <default>`."""
    names = dict(entity.names)
    return ", ".join(
        f"{entity_type} {DEFAULT_TEXT if names[entity_type] is None else names[entity_type]}"
        for entity_type in ("user", "client-id", "ip")
        if entity_type in names
    )
