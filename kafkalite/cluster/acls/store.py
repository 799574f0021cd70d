"""The ACLs of the tree, and the authorizer that decides by them.

1. The broker reads all ACLs before it accepts connections, and again with each session.
2. A change is applied to the authorizer of this broker when it is durable, before its response is sent. Other brokers
   read the pattern when they see the notification.
3. A pattern that cannot be read denies its resources until it is corrected; it is logged.
"""

import logging
from collections.abc import Callable, Collection, Generator, Sequence
from functools import partial

from kafkalite.callbacks import FanIn
from kafkalite.clock import Clock, Then
from kafkalite.cluster.acls.changes import AclChange, Acls, Changed
from kafkalite.cluster.acls.reads import read_all, read_pattern
from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.node_store import NodeStore
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.state.authorizer.acls import Acl, AclBinding, AclFilter, AclResourceType, PatternType, ResourcePattern
from kafkalite.state.authorizer.standard import StandardAuthorizer

LOGGER = logging.getLogger("kafkalite.cluster")

Deleted = list[tuple[AclBinding, Refusal | None]]


class AclStore(NodeStore[ResourcePattern, Acls]):
    """Reads and changes the ACLs.

    Arguments:
        session: with the coordination service.
        authorizer: decides by them.
        clock: for pauses.
        notify: whether other brokers are notified of changes.
    """

    def __init__(self, session: Coordination, authorizer: StandardAuthorizer, clock: Clock, *, notify: bool) -> None:
        super().__init__(session, clock, "ACLs", ())
        self.authorizer = authorizer
        self._notify = notify

    # Reads.

    def _read_all(self, then: Then) -> None:
        read_all(self._session, then)

    def _read(self, key: ResourcePattern, then: Then) -> None:
        read_pattern(self._session, key, then)

    def _known(self) -> Collection[ResourcePattern]:
        return {*self.authorizer.patterns, *self.authorizer.invalid}

    def _apply(self, key: ResourcePattern, value: Acls | ZnodeError) -> None:
        if not isinstance(value, ZnodeError):
            self.authorizer.replace(key, value)
        elif self.authorizer.invalid.get(key) != str(value):
            LOGGER.error("%s; all access to %s is denied until the node is corrected or deleted", value, key)
            self.authorizer.invalidate(key, str(value))

    # Changes.

    def create(
        self, bindings: Sequence[AclBinding], then: Callable[[list[Refusal | None]], object]
    ) -> Generator[None, None, None]:
        """Store ACLs, in steps: those of a pattern all or none.

        `then` is called with the refusal of each, None = it is stored.
        """
        by_pattern: dict[ResourcePattern, list[AclBinding]] = {}
        for binding in bindings:
            by_pattern.setdefault(binding.pattern, []).append(binding)
        patterns = list(by_pattern)

        def ended(ends: list[Changed]) -> None:
            refusals = {pattern: end.refusal for pattern, end in zip(patterns, ends, strict=True)}
            then([refusals[binding.pattern] for binding in bindings])

        ends: FanIn[Changed] = FanIn(len(patterns), ended)
        for index, pattern in enumerate(patterns):
            added = [binding.acl for binding in by_pattern[pattern]]
            self._change(pattern, partial(with_added, added), partial(ends.put, index))
            yield

    def delete(
        self, filters: Sequence[AclFilter], then: Callable[[list[Deleted]], object]
    ) -> Generator[None, None, None]:
        """Delete the ACLs that filters select, in steps.

        `then` is called with those of each filter, and why they were not. An ACL that several filters select belongs to
        the first one.
        """
        patterns = [
            pattern
            for pattern in dict.fromkeys([*self.authorizer.patterns, *map_patterns(filters)])
            if any(each.matches_pattern(pattern) for each in filters)
        ]
        ends: FanIn[Changed] = FanIn(
            len(patterns), lambda found: then(deleted_by_filter(filters, list(zip(patterns, found, strict=True))))
        )
        for index, pattern in enumerate(patterns):
            self._change(pattern, partial(without_selected, filters, pattern), partial(ends.put, index))
            yield

    def _change(
        self, pattern: ResourcePattern, change: Callable[[Acls], Acls], then: Callable[[Changed], object]
    ) -> None:
        def changed(end: Changed) -> None:
            if end.refusal is None:
                self._apply_change(pattern, end.after)
            else:  # the response names the ACLs that were to be changed
                end = end._replace(before=tuple(self.authorizer.acls_of(pattern)))
            then(end)

        AclChange(self._session, pattern, change, notify=self._notify, then=changed).start()


def with_added(added: Sequence[Acl], before: Acls) -> Acls:
    """Return ACLs with others behind them, each once."""
    return tuple(dict.fromkeys([*before, *added]))


def without_selected(filters: Sequence[AclFilter], pattern: ResourcePattern, before: Acls) -> Acls:
    """Return the ACLs of a pattern that no filter selects."""
    matching = [each for each in filters if each.matches_pattern(pattern)]
    return tuple(acl for acl in before if not any(each.matches_acl(acl) for each in matching))


def map_patterns(filters: Sequence[AclFilter]) -> list[ResourcePattern]:
    """Return the patterns that filters name, which another broker may have created just now
    (AclAuthorizer.filterToResources).
    """
    patterns = []
    for each in filters:
        if each.name is None or each.resource_type <= AclResourceType.ANY:
            continue
        several = (PatternType.LITERAL, PatternType.PREFIXED)
        types = several if each.pattern_type is PatternType.ANY else (each.pattern_type,)
        patterns += [ResourcePattern(each.resource_type, each.name, one) for one in types if one in several]
    return patterns


def deleted_by_filter(filters: Sequence[AclFilter], ends: list[tuple[ResourcePattern, Changed]]) -> list[Deleted]:
    """Return what each filter has deleted."""
    deleted: list[Deleted] = [[] for _ in filters]
    for pattern, end in ends:
        for acl in end.before:
            binding = AclBinding(pattern, acl)
            index = next((at for at, each in enumerate(filters) if each.matches(binding)), None)
            if index is not None:
                deleted[index].append((binding, end.refusal))
    return deleted
