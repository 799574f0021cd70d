"""`kafkalite user`: list, add and remove users with SCRAM credentials (KIP-554)."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kafkalite.cli.client_options import (
    NEXT_STEPS,
    AnyCaseChoice,
    Cluster,
    cluster_options,
    command_runner,
    fail_for,
    json_option,
    print_rows,
    servers_timeout_option,
    zookeeper_config_option,
)
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import confirm, fail
from kafkalite.errors import KafkaErrorCode

if TYPE_CHECKING:
    from kafkalite_sdk import Admin
    from kafkalite_sdk.admin import NewCredential, ScramMechanism, UserMechanism

COLUMNS = ("USER", "MECHANISM", "ITERATIONS")
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT = MECHANISMS[1]
ITERATIONS, ITERATIONS_MIN, ITERATIONS_MAX = 8192, 4096, 16_384
STANDARD_INPUT = "-"
LISTED = {KafkaErrorCode.RESOURCE_NOT_FOUND: "`kafkalite user list` lists the users"}


def mechanism_option(help: str) -> Callable[..., Any]:
    """The option `--mechanism`; `help` is its text."""
    choice = AnyCaseChoice(MECHANISMS)
    return click.option("-m", "--mechanism", "mechanisms", multiple=True, type=choice, metavar="MECHANISM", help=help)


@click.group(
    epilog="""\b
Examples:
  kafkalite user add alice
  kafkalite user add broker --zookeeper zk1:2181/kafka --password-file broker.password
  kafkalite user list
  kafkalite user remove alice
"""
)
def command() -> None:
    """List, add and remove users with SCRAM credentials."""


@command.command(
    name="list",
    epilog="""\b
Examples:
  kafkalite user list
  kafkalite user list alice bob --json
""",
)
@click.argument("users", nargs=-1, metavar="[USER]...")
@cluster_options
@json_option
@command_runner
async def list_(users: tuple[str, ...], cluster: Cluster, as_json: bool) -> None:
    """List users and their SCRAM mechanisms.

    Passwords are stored as hashes, and are never shown.
    """
    async with connect(cluster) as admin:
        found = await admin.users.describe(*users)
    rows = [
        (user, name_of(mechanism), iterations)
        for user, mechanisms in sorted(found.results.items())
        for mechanism, iterations in sorted(mechanisms.items())
    ]
    print_rows(COLUMNS, rows, as_json)
    fail_for({f"user {user}": error for user, error in found.errors.items()})


@command.command(
    epilog="""\b
Examples:
  kafkalite user add alice
  kafkalite user add alice --mechanism SCRAM-SHA-256 --iterations 4096 --password-file alice.password
  kafkalite user add admin --data ./data                            before the first start of a broker that is alone
  kafkalite user add broker --zookeeper zk1:2181,zk2:2181/kafka     before the first start of a cluster
  kafkalite user add broker --coordination ./coordination
"""
)
@click.argument("user")
@mechanism_option(f"May be repeated. Default: {DEFAULT}.")
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS,
    show_default=True,
    metavar="N",
    help="Of the hash.",
)
@click.option(
    "--password-file", metavar="FILE", help="The first line is the password; - = standard input. Default: ask for it."
)
@click.option("--zookeeper", metavar="SERVERS", help="Write into ZooKeeper: HOST:PORT,HOST:PORT/CHROOT.")
@click.option("--coordination", metavar="DIR", help="Write into the directory that the brokers of this machine share.")
@click.option("-d", "--data", metavar="DIR", help="Write into the log directory of a broker that does not run.")
@zookeeper_config_option
@servers_timeout_option
@cluster_options
@command_runner
async def add(
    user: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: str | None,
    zookeeper: str | None,
    coordination: str | None,
    data: str | None,
    config: str | None,
    timeout: float,
    cluster: Cluster,
) -> None:
    """Add a user, or change its password.

    Other mechanisms of the user stay. By default a broker stores the credentials. The first user of a cluster, as which
    its brokers log in to each other, is written into its tree before they start: --zookeeper, --coordination or --data.
    """
    if sum(each is not None for each in (zookeeper, coordination, data)) > 1:
        fail("give one of --zookeeper, --coordination and --data")
    if config is not None and zookeeper is None:
        fail("--zookeeper-config is for --zookeeper")
    wanted = tuple(dict.fromkeys(mechanisms)) or (DEFAULT,)
    password = read_password(password_file, user)
    if zookeeper is None and coordination is None and data is None:
        await add_online(cluster, user, password, wanted, iterations)
    else:
        from kafkalite.cli.user.offline import Tree, add_user

        await add_user(Tree(zookeeper, coordination, data, config, timeout), user, password, wanted, iterations)
    click.echo(f"added: user {user} with {', '.join(wanted)}")


async def add_online(cluster: Cluster, user: str, password: str, mechanisms: tuple[str, ...], iterations: int) -> None:
    """Let a broker store credentials; ends the command if it does not.

    Arguments:
        cluster: of the broker.
        user, password: the user.
        mechanisms: of SCRAM.
        iterations: of the hash.
    """
    from kafkalite_sdk.admin import NewCredential, UserMechanism

    new = NewCredential(password, iterations)
    async with connect(cluster) as admin:
        for each in mechanisms:
            await alter(admin, {UserMechanism(user, mechanism_of(each)): new})


async def alter(admin: "Admin", change: "dict[UserMechanism, NewCredential | None]") -> None:
    """Change one credential; ends the command if it is refused. KRaft accepts one per user and request."""
    outcomes = await admin.users.alter(change)
    fail_for({f"user {each}": error for each, error in outcomes.errors.items()})


def read_password(file: str | None, user: str) -> str:
    """Return the password from a file, or ask for it; ends the command if there is none. Raises OSError."""
    if file is None:
        if not sys.stdin.isatty():
            text = "there is no terminal to ask for it; give --password-file FILE, or - for standard input"
            fail(f"the password of {user}: {text}")
        entered: str = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        return entered
    if file == STANDARD_INPUT:
        line = sys.stdin.readline()
    else:
        with open(file, encoding="utf-8") as opened:
            line = opened.readline()
    password = line.rstrip("\r\n")
    if not password or "\0" in password:
        fail(f"{'standard input' if file == STANDARD_INPUT else file}: the first line is no password")
    return password


@command.command(
    epilog="""\b
Examples:
  kafkalite user remove alice
  kafkalite user remove alice --mechanism SCRAM-SHA-256 --yes
"""
)
@click.argument("user")
@mechanism_option("Only this one; may be repeated. Default: all of the user.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_options
@json_option
@command_runner
async def remove(user: str, mechanisms: tuple[str, ...], yes: bool, cluster: Cluster, as_json: bool) -> None:
    """Remove the credentials of a user. Its connections stay open until their sessions end."""
    from kafkalite_sdk.admin import UserMechanism

    async with connect(cluster) as admin:
        described = await admin.users.describe(user)
        fail_for({f"user {each}": error for each, error in described.errors.items()}, steps=NEXT_STEPS | LISTED)
        known = described.results[user]
        wanted = [mechanism_of(each) for each in dict.fromkeys(mechanisms)] or sorted(known)
        confirm(f"Remove {len(wanted)} credential(s) of user {user}?", yes=yes)
        for each in wanted:
            await alter(admin, {UserMechanism(user, each): None})
    print_rows(COLUMNS, [(user, name_of(each), known[each]) for each in wanted], as_json)


def mechanism_of(name: str) -> "ScramMechanism":
    """Return the mechanism of a name such as SCRAM-SHA-512."""
    from kafkalite_sdk.admin import ScramMechanism

    return ScramMechanism[name.replace("-", "_")]


def name_of(mechanism: "ScramMechanism") -> str:
    """Return the name of a mechanism, as the setting sasl.mechanism has it."""
    return mechanism.name.replace("_", "-")
