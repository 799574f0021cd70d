"""The right that a command needs, for its error when the client lacks it."""

from shlex import quote

import click

from kafkalite.cli.failure import USER, PartitionSubject
from kafkalite.errors import ACL_OPTIONS, GRANT, KafkaErrorCode, with_right

TOPIC, GROUP, CLUSTER, TRANSACTION = (
    KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED,
    KafkaErrorCode.GROUP_AUTHORIZATION_FAILED,
    KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
LOOKUP = f"{GRANT} -o describe "  # what the SDK names where a coordinator is looked up
# Operations by command and error code (`docs/authorization.md`); others describe the resource.
OPERATIONS: dict[tuple[str, int], str] = {
    ("topic create", TOPIC): "create",
    ("topic create", CLUSTER): "create",
    ("topic alter", TOPIC): "alter",
    ("topic delete", TOPIC): "delete",
    ("topic delete-records", TOPIC): "delete",
    ("topic elect-leaders", CLUSTER): "alter",
    ("config describe", TOPIC): "describe-configs",
    ("config describe", GROUP): "describe-configs",
    ("config describe", CLUSTER): "describe-configs",
    ("config alter", TOPIC): "alter-configs",
    ("config alter", GROUP): "alter-configs",
    ("config alter", CLUSTER): "alter-configs",
    ("security check", CLUSTER): "describe-configs",
    ("quota list", CLUSTER): "describe-configs",
    ("quota add", CLUSTER): "alter-configs",
    ("quota remove", CLUSTER): "alter-configs",
    ("acl add", CLUSTER): "alter",
    ("acl remove", CLUSTER): "alter",
    ("user add", CLUSTER): "alter",
    ("user remove", CLUSTER): "alter",
    ("group delete", GROUP): "delete",
    ("group reset", GROUP): "read",
    ("group rewind", GROUP): "read",
    ("transaction abort", CLUSTER): "cluster-action",
    ("transaction abort", TOPIC): "read",
    ("transaction find-hanging", TOPIC): "read",
    ("transaction terminate", TRANSACTION): "write",
    ("produce", TOPIC): "write",
    ("produce", TRANSACTION): "write",
    ("consume", TOPIC): "read",
    ("consume", GROUP): "read",
}


def with_needed_right(code: int, text: str, subject: str = "") -> str:
    """Return the text of an error of the current command; one of a missing right names the command that grants it.

    Arguments:
        code: of the error.
        text: so far.
        subject: the topic, group or transactional id; "" = the text has it.
    """
    context = click.get_current_context(silent=True)
    command = "" if context is None else context.command_path.partition(" ")[2]
    if code == KafkaErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED and command == "token create":
        return with_user(f"{text}; {GRANT} -o create-tokens --user OWNER` grants it")
    if code not in ACL_OPTIONS:
        return text
    operation = OPERATIONS.get((command, code), "describe")
    text = text.replace(LOOKUP, f"{GRANT} -o {operation} ")
    return with_user(with_right(code, text, operation, resource_name(code, subject)))


def with_user(text: str) -> str:
    """Return an error of the current command with its user as the one to whom the right is granted.

    Only the broker knows the user of a certificate or of a token: the text keeps USER.
    """
    context = click.get_current_context(silent=True)
    user = None if context is None else context.meta.get(USER)
    return text if user is None else text.replace(GRANT, GRANT.replace("USER", quote(user)))


def resource_name(code: int, subject: str) -> str:
    """Return the name of the topic, group or transactional id whose right is missing."""
    if isinstance(subject, PartitionSubject):
        return subject.group if code == GROUP else subject.topic
    return subject.removeprefix("topic:").removeprefix("group:") or "NAME"
