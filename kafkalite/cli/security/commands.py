"""`kafkalite security`: create certificates and a super user; report weak settings."""

from pathlib import Path

import click

from kafkalite.cli.client_options import Cluster, cluster_options, command_runner, json_option, print_rows
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import fail

COLUMNS = ("SOURCE", "KEY", "PROBLEM", "REMEDY")
WEAK = 1  # exit code of `check`


@click.group(
    epilog="""\b
Examples:
  kafkalite security init ./security --host broker.example
  kafkalite security check --config server.properties
  kafkalite security check -b broker.example:9093 --client-config ./security/client.properties
"""
)
def command() -> None:
    """Create certificates and a super user, and report weak settings."""


@command.command(
    epilog="""\b
Examples:
  kafkalite security init
  kafkalite security init ./security --host broker1.example --host broker2.example --user alice
"""
)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=Path("security"))
@click.option(
    "--host", "hosts", multiple=True, metavar="HOST", help="Of a broker; may be repeated.  [default: localhost]"
)
@click.option("--port", type=click.IntRange(1, 65_534), default=9093, show_default=True, help="For clients.")
@click.option("-u", "--user", default="admin", show_default=True, help="The super user: it may do everything.")
@click.option("--days", type=click.IntRange(1), default=365, show_default=True, help="How long certificates are valid.")
def init(directory: Path, hosts: tuple[str, ...], port: int, user: str, days: int) -> None:
    """Create certificates and a super user.

    DIRECTORY (./security) gets a test authority, certificates, and settings for brokers (server.properties: SASL_SSL
    for clients, SSL between brokers, ACLs) and for clients (client.properties). Keep ca.key apart, or delete it: it
    signs certificates of brokers and clients.
    """
    from kafkalite.cli.security.initial_files import FILES, create_files, is_host

    if not user.isascii() or not user.replace("-", "").replace("_", "").isalnum():
        fail(f"--user {user!r}: use letters, digits, - and _")
    if unusable := [each for each in hosts if not is_host(each)]:
        fail(f"--host {unusable[0]!r}: use a host name or an IP address")
    try:
        if found := [name for name in FILES if (directory / name).exists()]:
            fail(f"{directory} has {', '.join(found)}: nothing is overwritten; name another directory")
        texts = create_files(directory, hosts or ("localhost",), port, user, days)
    except ValueError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    for name, text in texts.items():
        click.echo(f"# {directory / name}\n{text}")
    click.echo(f"Run a broker:  kafkalite serve --config {directory / 'server.properties'}")
    click.echo(f"Then:          kafkalite topic list --client-config {directory / 'client.properties'}")


@command.command(
    epilog="""\b
Examples:
  kafkalite security check --config server.properties
  kafkalite security check --config server.properties --json
  kafkalite security check -b broker.example:9093 --client-config client.properties
"""
)
@click.option("-c", "--config", "file", metavar="FILE", help="server.properties or TOML, instead of running brokers.")
@click.option(
    "--days", type=click.IntRange(0), default=30, show_default=True, help="Report certificates that end by then."
)
@cluster_options
@json_option
@command_runner
async def check(file: str | None, days: int, cluster: Cluster, as_json: bool) -> None:
    """Report weak settings of a file or of running brokers. Exit code 1: there is one.

    Passwords, keys and certificates are checked in files only: running brokers do not show them.
    """
    if file is not None:
        from kafkalite.cli.security.weak_files import weak_file_settings

        rows = [(file, *each) for each in weak_file_settings(file, days)]
    else:
        from kafkalite.cli.security.weak_settings import weak_settings

        async with connect(cluster) as admin:
            described = await described_brokers(admin)
        rows = [(source, *each) for source, texts in described.items() for each in weak_settings(texts)]
    if rows or as_json:
        print_rows(COLUMNS, rows, as_json)
    else:
        click.echo("no weak setting")
    if rows:
        click.get_current_context().exit(WEAK)


async def described_brokers(admin: object) -> dict[str, dict[str, str]]:
    """Return the settings of each broker; passwords are left out. Ends the command if a broker does not answer."""
    from kafkalite_sdk import Admin
    from kafkalite_sdk.admin import Resource

    from kafkalite.cli.client_options import fail_for

    assert isinstance(admin, Admin)
    brokers = (await admin.cluster.describe()).brokers
    resources = {Resource.broker(each.broker_id): f"broker:{each.broker_id}" for each in brokers}
    outcomes = await admin.configs.describe(*resources)
    fail_for({resources[each]: error for each, error in outcomes.errors.items()})
    return {
        resources[resource]: {each.name: each.value for each in configs.values() if each.value is not None}
        for resource, configs in outcomes.results.items()
    }
