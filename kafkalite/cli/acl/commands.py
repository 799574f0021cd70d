"""`kafkalite acl`: list, add, remove and check ACLs."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from kafkalite.cli.acl.principals import ALL_HOSTS, client_address, principal_of
from kafkalite.cli.acl.supported import option_text, require_supported
from kafkalite.cli.client_options import (
    AnyCaseChoice,
    Cluster,
    cluster_options,
    command_runner,
    fail_for,
    json_option,
    print_rows,
)
from kafkalite.cli.connection import connect
from kafkalite.cli.failure import confirm, fail

if TYPE_CHECKING:
    from kafkalite_sdk.admin import Acl, AclFilter, AclOperation, AclResource

COLUMNS = ("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "PATTERN", "NAME", "HOST")
OPERATIONS = (
    *("all", "read", "write", "create", "delete", "alter", "describe", "cluster-action", "describe-configs"),
    *("alter-configs", "idempotent-write", "create-tokens", "describe-tokens", "two-phase-commit"),
)
RESOURCES = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional_id": "TRANSACTIONAL_ID",
    "token": "DELEGATION_TOKEN",
    "user": "USER",
}
CLUSTER_NAME = "kafka-cluster"
DENIED = 1  # exit code of `check`


def resource_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name resources."""
    options = [
        click.option("-t", "--topic", multiple=True, metavar="NAME", help="A topic, * = all; may be repeated."),
        click.option("-g", "--group", multiple=True, metavar="NAME", help="A group; may be repeated."),
        click.option("--transactional-id", multiple=True, metavar="ID", help="A transactional id; may be repeated."),
        click.option("--token", multiple=True, metavar="ID", help="A delegation token; may be repeated."),
        click.option(
            "--user", multiple=True, metavar="NAME", help="A user whose tokens (alice = User:alice); may be repeated."
        ),
        click.option("--cluster", "of_cluster", is_flag=True, help="The cluster."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


principal_option = click.option(
    "-u", "--principal", required=True, metavar="PRINCIPAL", help="alice = User:alice; User:* = all."
)
operation_option = click.option(
    "-o",
    "--operation",
    "operations",
    multiple=True,
    type=AnyCaseChoice(OPERATIONS),
    help="May be repeated.",
)


@click.group(
    epilog="""\b
Examples:
  kafkalite acl add -u alice -o read -o write --topic orders
  kafkalite acl add -u alice -o read --group billing- --prefixed
  kafkalite acl list --topic orders
  kafkalite acl check -u alice -o write --topic orders
  kafkalite acl remove -u alice --topic orders
"""
)
def command() -> None:
    """List, add, remove and check ACLs: which principals may do what."""


@command.command(
    name="list",
    epilog="""\b
Examples:
  kafkalite acl list
  kafkalite acl list --topic orders                    the ACLs of this pattern
  kafkalite acl list --topic orders --matching         all that apply to the topic: literal, prefixed and *
  kafkalite acl list -u alice --json
""",
)
@click.option("-u", "--principal", metavar="PRINCIPAL", help="Only those of this principal.")
@click.option("--matching", is_flag=True, help="Also prefixed patterns and *, which apply to the named resources.")
@resource_options
@cluster_options
@json_option
@command_runner
async def list_(
    principal: str | None, matching: bool, of_cluster: bool, cluster: Cluster, as_json: bool, **named: tuple[str, ...]
) -> None:
    """List ACLs."""
    from kafkalite_sdk.admin import AclFilter, Pattern

    pattern = Pattern.MATCH if matching else Pattern.ANY
    who = None if principal is None else principal_of(principal)
    filters = [
        AclFilter(resource, name, who, pattern=pattern) for resource, name in resources(named, of_cluster=of_cluster)
    ] or [AclFilter(principal=who)]
    async with connect(cluster) as admin:
        found = dict.fromkeys([acl for each in filters for acl in await admin.acls.list(each)])
    print_rows(COLUMNS, map(row_of, sorted(found)), as_json)


@command.command(
    epilog="""\b
Examples:
  kafkalite acl add -u alice -o read -o write --topic orders
  kafkalite acl add -u 'User:*' -o describe --topic public- --prefixed
  kafkalite acl add -u mallory -o all --topic '*' --deny
  kafkalite acl add -u alice -o idempotent-write --cluster --host 10.0.0.7
"""
)
@principal_option
@operation_option
@click.option("--deny", is_flag=True, help="Deny the operations: this wins over each ACL that allows.")
@click.option("--prefixed", is_flag=True, help="The names are prefixes.")
@click.option("--host", multiple=True, metavar="ADDRESS", help="Only from this address; may be repeated. Default: all.")
@resource_options
@cluster_options
@command_runner
async def add(
    principal: str,
    operations: tuple[str, ...],
    deny: bool,
    prefixed: bool,
    host: tuple[str, ...],
    of_cluster: bool,
    cluster: Cluster,
    **named: tuple[str, ...],
) -> None:
    """Add ACLs; those that exist stay."""
    from kafkalite_sdk.admin import Acl, Pattern, Permission

    if not operations:
        fail("give at least one --operation")
    chosen = require_resources(named, of_cluster=of_cluster)
    require_supported([operation_of(each) for each in operations], chosen)
    acls = [
        Acl(
            resource,
            name,
            principal_of(principal),
            operation_of(operation),
            Permission.DENY if deny else Permission.ALLOW,
            Pattern.PREFIXED if prefixed else Pattern.LITERAL,
            address,
        )
        for resource, name in chosen
        for operation in operations
        for address in map(client_address, host or (ALL_HOSTS,))
    ]
    async with connect(cluster) as admin:
        outcomes = await admin.acls.create(*acls)
    for acl in outcomes.results:
        click.echo(f"added: {describe(acl)}")
    fail_for({describe(acl): error for acl, error in outcomes.errors.items()})


@command.command(
    epilog="""\b
Examples:
  kafkalite acl remove -u alice --topic orders               all of alice at this topic
  kafkalite acl remove -u alice -o write --topic orders
  kafkalite acl remove --topic orders --yes                  those of all principals
"""
)
@click.option("-u", "--principal", metavar="PRINCIPAL", help="Only those of this principal.")
@operation_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@resource_options
@cluster_options
@json_option
@command_runner
async def remove(
    principal: str | None,
    operations: tuple[str, ...],
    yes: bool,
    of_cluster: bool,
    cluster: Cluster,
    as_json: bool,
    **named: tuple[str, ...],
) -> None:
    """Remove ACLs, and print them."""
    from kafkalite_sdk.admin import AclFilter, AclOperation

    wanted: list[tuple[Any, str | None]] = [*resources(named, of_cluster=of_cluster)]
    if not wanted and principal is None:
        fail("give a resource or a --principal")
    everywhere = AclFilter()
    who = None if principal is None else principal_of(principal)
    filters = [
        AclFilter(resource, name, who, operation)
        for resource, name in wanted or [(everywhere.resource, None)]
        for operation in [operation_of(each) for each in operations] or [AclOperation.ANY]
    ]
    async with connect(cluster) as admin:
        if not yes:
            await confirm_removal(admin, filters)
        outcomes = await admin.acls.delete(*filters)
    print_rows(COLUMNS, [row_of(acl) for removed in outcomes.results.values() for acl in removed], as_json)
    fail_for({f"filter {at + 1}": error for at, error in enumerate(outcomes.errors.values())})


async def confirm_removal(admin: Any, filters: "list[AclFilter]") -> None:
    """Ask before ACLs are removed."""
    count = len({acl for each in filters for acl in await admin.acls.list(each)})
    confirm(f"Remove {count} ACL(s)?", yes=False)


@command.command(
    epilog="""\b
Examples:
  kafkalite acl check -u alice -o write --topic orders
  kafkalite acl check -u alice -o read --group billing --host 10.0.0.7 --json
"""
)
@principal_option
@operation_option
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", show_default=True, help="Address of the client.")
@resource_options
@cluster_options
@json_option
@command_runner
async def check(
    principal: str,
    operations: tuple[str, ...],
    host: str,
    of_cluster: bool,
    cluster: Cluster,
    as_json: bool,
    **named: tuple[str, ...],
) -> None:
    """Show whether the ACLs allow operations, and which ACL decides. Exit code 1: one is denied.

    super.users and allow.everyone.if.no.acl.found of the brokers are not applied: a super user may do everything.
    """
    from kafkalite_sdk.admin import AclFilter, Pattern

    if not operations:
        fail("give at least one --operation")
    asked = require_resources(named, of_cluster=of_cluster)
    require_supported([operation_of(each) for each in operations], asked)
    async with connect(cluster) as admin:
        found = [acl for at in asked for acl in await admin.acls.list(AclFilter(*at, pattern=Pattern.MATCH))]
    rows = list(decide_all(found, principal_of(principal), host, operations, asked))
    print_rows(("OPERATION", "RESOURCE", "NAME", "RESULT", "REASON"), rows, as_json)
    if any(row[3] == "denied" for row in rows):
        click.get_current_context().exit(DENIED)


def decide_all(
    acls: "list[Acl]", principal: str, host: str, operations: tuple[str, ...], asked: "list[tuple[AclResource, str]]"
) -> Iterator[tuple[str, str, str, str, str]]:
    """Decide by ACLs as the authorizer of a broker.

    Arguments:
        acls: that apply to the resources.
        principal: as `User:alice`.
        host: address of the client.
        operations: names of options.
        asked: the resources.
    """
    from kafkalite.state.authorizer import acls as codes
    from kafkalite.state.authorizer.standard import StandardAuthorizer

    by_pattern: dict[codes.ResourcePattern, list[codes.Acl]] = {}
    for each in acls:
        pattern = codes.ResourcePattern(
            codes.AclResourceType(each.resource), each.name, codes.PatternType(each.pattern)
        )
        entry = codes.Acl(
            each.principal, each.host, codes.AclOperation(each.operation), codes.PermissionType(each.permission)
        )
        by_pattern.setdefault(pattern, []).append(entry)
    authorizer = StandardAuthorizer()
    for pattern, entries in by_pattern.items():
        authorizer.replace(pattern, entries)
    for resource, name in asked:
        for operation in operations:
            code, resource_type = codes.AclOperation(operation_of(operation)), codes.AclResourceType(resource)
            decision = authorizer.decide(codes.parse_principal(principal), host, code, resource_type, name)
            reason = explain(decision.acl)
            yield operation, option_text(resource.name), name, "allowed" if decision.allowed else "denied", reason


def explain(binding: Any) -> str:
    """Return the ACL that decides, as a sentence."""
    if binding is None:
        return "no ACL applies"
    (resource_type, name, pattern_type), (principal, host, operation, permission) = binding
    return (
        f"{permission.name.lower()} {option_text(operation.name)} for {principal} from {host} "
        f"on {option_text(resource_type.name)} {pattern_type.name.lower()} {name}"
    )


def resources(named: dict[str, tuple[str, ...]], *, of_cluster: bool) -> "list[tuple[AclResource, str]]":
    """Return the resources that options name."""
    from kafkalite_sdk.admin import AclResource

    found = [
        (AclResource[RESOURCES[option]], user_resource(name) if option == "user" else name)
        for option, names in named.items()
        for name in names
    ]
    return [*found, (AclResource.CLUSTER, CLUSTER_NAME)] if of_cluster else found


def require_resources(named: dict[str, tuple[str, ...]], *, of_cluster: bool) -> "list[tuple[AclResource, str]]":
    """Return the resources that options name, or end the command."""
    found = resources(named, of_cluster=of_cluster)
    if not found:
        fail("give a resource: --topic, --group, --transactional-id, --token, --user or --cluster")
    return found


def user_resource(text: str) -> str:
    """Return the name of a resource of type user, which is a principal (KIP-373); `*` = all."""
    return text if text == "*" else principal_of(text)


def operation_of(text: str) -> "AclOperation":
    """Return the operation of an option."""
    from kafkalite_sdk.admin import AclOperation

    return AclOperation[text.upper().replace("-", "_")]


def row_of(acl: "Acl") -> tuple[str, ...]:
    """Return an ACL for `COLUMNS`."""
    texts = (acl.permission.name, acl.operation.name, acl.resource.name, acl.pattern.name)
    permission, operation, resource, pattern = map(option_text, texts)
    return acl.principal, permission, operation, resource, pattern, acl.name, acl.host


def describe(acl: "Acl") -> str:
    """Return an ACL as a line."""
    principal, permission, operation, resource, pattern, name, host = row_of(acl)
    return f"{permission} {operation} for {principal} from {host} on {resource} {pattern} {name}"
