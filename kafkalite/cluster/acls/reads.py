"""Reads the ACLs of the tree: of one pattern, or all."""

from collections.abc import Callable
from functools import partial

from kafkalite.callbacks import gather
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.acls.nodes import decode, path_of
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.bulk_reads import ensure_nodes
from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.znodes.acls import EXTENDED_CHANGES, LITERAL_ACLS, LITERAL_CHANGES, PREFIXED_ACLS
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.state.authorizer.acls import Acl, AclResourceType, PatternType, ResourcePattern

TYPES = tuple(each for each in AclResourceType if each > AclResourceType.ANY)
STORES = {PatternType.LITERAL: LITERAL_ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
PERSISTENT = (
    *(f"{store}/{each.title}" for store in STORES.values() for each in TYPES),
    *(LITERAL_CHANGES, EXTENDED_CHANGES),
)  # KafkaZkClient.createAclPaths

# The ACLs of a pattern, or why they cannot be read.
Stored = tuple[Acl, ...] | ZnodeError


def read_pattern(session: Coordination, pattern: ResourcePattern, then: Then) -> None:
    """Read the ACLs of a pattern; the value is `Stored`, without ACLs where there is no node."""
    path = path_of(pattern)

    def read(outcome: Outcome) -> None:
        if isinstance(outcome.error, NoNodeError):
            then(Outcome(()))
        elif outcome.error is not None:
            then(outcome)
        else:
            then(Outcome(_stored(path, outcome.value[0])))

    session.get(path, read)


def _stored(path: str, data: bytes) -> Stored:
    try:
        return decode(path, data)
    except ZnodeError as error:
        return error


def read_all(session: Coordination, then: Then) -> None:
    """Read all ACLs; creates missing parents. The value is a dictionary from patterns to `Stored`."""
    parents = [(each, pattern_type) for pattern_type in STORES for each in TYPES]

    def ensured(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(outcome)
            return
        calls = [partial(session.children, f"{STORES[store]}/{each.title}") for each, store in parents]
        gather(calls, listed)

    def listed(outcomes: list[Outcome]) -> None:
        failed = _first_failure(outcomes)
        if failed is not None:
            then(failed)
            return
        patterns = [
            ResourcePattern(each, name, store)
            for (each, store), outcome in zip(parents, outcomes, strict=True)
            for name in outcome.value[0]
        ]
        calls: list[Callable[[Then], object]] = [partial(read_pattern, session, pattern) for pattern in patterns]
        gather(calls, partial(all_read, patterns))

    def all_read(patterns: list[ResourcePattern], outcomes: list[Outcome]) -> None:
        failed = _first_failure(outcomes)
        stored = {pattern: outcome.value for pattern, outcome in zip(patterns, outcomes, strict=True)}
        then(Outcome(stored) if failed is None else failed)

    ensure_nodes(session, PERSISTENT, ensured)


def _first_failure(outcomes: list[Outcome]) -> Outcome | None:
    return next((each for each in outcomes if each.error is not None), None)
