"""Reads the ACLs of the tree: of one pattern, or all."""

from functools import partial

from kafkalite.callbacks import gather
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.acls.nodes import decode, path_of
from kafkalite.cluster.node_store import first_failure, read_each, read_node
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.bulk_reads import ensure_nodes
from kafkalite.coordination.znodes.acls import EXTENDED_CHANGES, LITERAL_ACLS, LITERAL_CHANGES, PREFIXED_ACLS
from kafkalite.state.authorizer.acls import AclResourceType, PatternType, ResourcePattern

TYPES = tuple(each for each in AclResourceType if each > AclResourceType.ANY)
STORES = {PatternType.LITERAL: LITERAL_ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
PERSISTENT = (
    *(f"{store}/{each.title}" for store in STORES.values() for each in TYPES),
    *(LITERAL_CHANGES, EXTENDED_CHANGES),
)  # KafkaZkClient.createAclPaths


def read_pattern(session: Coordination, pattern: ResourcePattern, then: Then) -> None:
    """Read the ACLs of a pattern; the value is a tuple, empty without a node, or a ZnodeError."""
    read_node(session, path_of(pattern), decode, (), then)


def read_all(session: Coordination, then: Then) -> None:
    """Read all ACLs; creates missing parents. The value is a dictionary from patterns to those of `read_pattern`."""
    parents = [(each, pattern_type) for pattern_type in STORES for each in TYPES]

    def ensured(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(outcome)
            return
        calls = [partial(session.children, f"{STORES[store]}/{each.title}") for each, store in parents]
        gather(calls, listed)

    def listed(outcomes: list[Outcome]) -> None:
        failed = first_failure(outcomes)
        if failed is not None:
            then(failed)
            return
        patterns = [
            ResourcePattern(each, name, store)
            for (each, store), outcome in zip(parents, outcomes, strict=True)
            for name in outcome.value[0]
        ]
        read_each(patterns, partial(read_pattern, session), then)

    ensure_nodes(session, PERSISTENT, ensured)
