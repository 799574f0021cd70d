"""The invalid nodes of the tree of a cluster, and what to do about each."""

from collections.abc import Iterable
from typing import NamedTuple

from kafkalite_sdk.admin import Coordination

from kafkalite.coordination import znodes
from kafkalite.coordination.znodes.controller import CONTROLLER, CONTROLLER_EPOCH
from kafkalite.coordination.znodes.names import is_number
from kafkalite.state.topic_names import complaint

DELETE = "delete the node"
CORRECT = "write valid contents, or delete the node"
EPOCH = "write the epoch of the last controller, a whole number: no controller is elected before"
REGISTRATION = "restart this broker, so that it registers again; if there is none, delete the node"
READ_AGAIN = f"{CORRECT}; then delete {CONTROLLER}, so that a controller reads it"


class NodeStatus(NamedTuple):
    """A node that the cluster leaves out.

    Attributes:
        path: its path below that of the cluster.
        reason: what is wrong with it.
        action: what to do.
    """

    path: str
    reason: str
    action: str


def node_statuses(sessions: Iterable[Coordination]) -> list[NodeStatus]:
    """The nodes that brokers leave out, each once, sorted by path."""
    reasons = {node.path: node.reason for session in sessions for node in session.invalid_nodes}
    return [NodeStatus(path, reason, action_for(path)) for path, reason in sorted(reasons.items())]


def action_for(path: str) -> str:
    """What to do about an invalid node. The controller watches registrations and topics, and reads others once."""
    parent, _, name = path.rpartition("/")
    if path == CONTROLLER_EPOCH:
        return EPOCH
    if parent == znodes.BROKER_IDS:
        return REGISTRATION if is_number(name) else DELETE
    if parent == znodes.TOPICS:
        return DELETE if complaint(name) else CORRECT
    return DELETE if parent == znodes.DELETE_TOPICS else READ_AGAIN


def one_line(text: str) -> str:
    """The text without characters that control the terminal or end the line: other programs wrote it."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
