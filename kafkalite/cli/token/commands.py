"""`kafkalite token`: create, list, renew and expire delegation tokens."""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kafkalite.cli.acl.principals import principal_of
from kafkalite.cli.client_options import Cluster, cluster_options, command_runner, json_option, print_rows
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import fail
from kafkalite.cli.times import time_text

if TYPE_CHECKING:
    from kafkalite_sdk import Admin
    from kafkalite_sdk.admin import DelegationToken

COLUMNS = ("TOKEN-ID", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "ENDS")
WITH_HMAC = (*COLUMNS, "HMAC")
UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION = re.compile("([0-9]{1,12})(ms|s|m|h|d)")
HMAC_BYTES = 64


def parse_duration(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Return the milliseconds of a duration such as 7d or 12h, as a callback of an option; None stays None."""
    if text is None:
        return None
    found = DURATION.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration; write a number and one of {', '.join(UNITS)}: 12h")
    return int(found[1]) * UNITS[found[2]]


def duration_option(*names: str, help: str) -> Callable[..., Any]:
    """An option with a duration, of which the command receives the milliseconds."""
    return click.option(*names, callback=parse_duration, metavar="DURATION", help=help)


@click.group(
    epilog="""\b
Examples:
  kafkalite token create --renewer bob --lifetime 7d
  kafkalite token list
  kafkalite token renew TOKEN-ID --for 12h
  kafkalite token expire TOKEN-ID

The connection must be authenticated by SASL or a TLS certificate: -X security.protocol=SASL_SSL ..., or
--client-config FILE. A client logs in with a token by SCRAM: its id is the user name, its HMAC the password, and
sasl.tokenauth=true.
"""
)
def command() -> None:
    """Create, list, renew and expire delegation tokens: logins that end by themselves."""


@command.command(
    epilog="""\b
Examples:
  kafkalite token create --client-config alice.properties
  kafkalite token create --renewer bob --renewer carol --lifetime 1d
  kafkalite token create --owner alice                       needs the right create-tokens on the user alice
"""
)
@click.option("--owner", metavar="PRINCIPAL", help="alice = User:alice. Default: the user of this connection.")
@click.option("--renewer", "renewers", multiple=True, metavar="PRINCIPAL", help="May renew it; may be repeated.")
@duration_option("--lifetime", help="The longest lifetime. Default: that of the broker.")
@cluster_options
@json_option
@command_runner
async def create(
    owner: str | None, renewers: tuple[str, ...], lifetime: int | None, cluster: Cluster, as_json: bool
) -> None:
    """Create a token, and print it.

    Its HMAC is the password of logins.
    """
    who = None if owner is None else principal_of(owner)
    async with connect(cluster) as admin:
        token = await admin.tokens.create(owner=who, renewers=map(principal_of, renewers), lifetime_ms=lifetime)
    print_rows(WITH_HMAC, [row_of(token, as_json, with_hmac=True)], as_json)


@command.command(
    name="list",
    epilog="""\b
Examples:
  kafkalite token list
  kafkalite token list --owner alice --json
  kafkalite token list --hmac                                with the passwords
""",
)
@click.option("--owner", "owners", multiple=True, metavar="PRINCIPAL", help="Only those it owns or renews.")
@click.option("--hmac", "with_hmac", is_flag=True, help="Print the HMACs, which are the passwords of logins.")
@cluster_options
@json_option
@command_runner
async def list_(owners: tuple[str, ...], with_hmac: bool, cluster: Cluster, as_json: bool) -> None:
    """List the tokens that this user owns, renews, or may describe."""
    async with connect(cluster) as admin:
        found = await admin.tokens.describe(*map(principal_of, owners))
    columns = WITH_HMAC if with_hmac else COLUMNS
    print_rows(columns, [row_of(token, as_json, with_hmac=with_hmac) for token in found], as_json)


token_argument = click.argument("token", metavar="TOKEN")


@command.command(
    epilog="""\b
Examples:
  kafkalite token renew 2YmNVPWYSxaqdDyKpNGZyg
  kafkalite token renew 2YmNVPWYSxaqdDyKpNGZyg --for 12h
"""
)
@token_argument
@duration_option("--for", "period", help="From now on. Default: that of the broker.")
@cluster_options
@command_runner
async def renew(token: str, period: int | None, cluster: Cluster) -> None:
    """Move the expiry of a token, given by its id or its HMAC. Its longest lifetime is the limit."""
    async with connect(cluster) as admin:
        expiry_ms = await admin.tokens.renew(await hmac_of(admin, token), period_ms=period)
    click.echo(f"expires: {time_text(expiry_ms)}")


@command.command(
    epilog="""\b
Examples:
  kafkalite token expire 2YmNVPWYSxaqdDyKpNGZyg              at once: the token is removed
  kafkalite token expire 2YmNVPWYSxaqdDyKpNGZyg --in 10m
"""
)
@token_argument
@duration_option("--in", "period", help="From now on. Default: at once.")
@cluster_options
@command_runner
async def expire(token: str, period: int | None, cluster: Cluster) -> None:
    """Remove a token, given by its id or its HMAC, or set its expiry.

    Connections that have authenticated with it stay open until the expiry that they began with.
    """
    async with connect(cluster) as admin:
        expiry_ms = await admin.tokens.expire(await hmac_of(admin, token), period_ms=period)
    click.echo("removed" if period is None else f"expires: {time_text(expiry_ms)}")


async def hmac_of(admin: "Admin", token: str) -> bytes:
    """Return the HMAC of a token that is given by its id, or the HMAC that is given in base64."""
    found = {each.token_id: each.hmac for each in await admin.tokens.describe()}
    if token in found:
        return found[token]
    try:
        given = b64decode(token, validate=True)
    except (binascii.Error, ValueError):
        given = b""
    if len(given) != HMAC_BYTES:
        fail(f"{token}: no token with this id can be seen; `kafkalite token list` lists them")
    return given


def row_of(token: "DelegationToken", as_json: bool, *, with_hmac: bool) -> tuple[object, ...]:
    """Return a token for `COLUMNS`, or for `WITH_HMAC`."""
    renewers = list(token.renewers) if as_json else ",".join(token.renewers) or "-"
    times = map(time_text, (token.issued_ms, token.expiry_ms, token.max_ms))
    row = (token.token_id, token.owner, token.requester or "-", renewers, *times)
    return (*row, b64encode(token.hmac).decode()) if with_hmac else row
