"""The ACLs of the tree, and the authorizer that decides by them.

1. The broker reads all ACLs before it accepts connections, and again with each session.
2. A change is applied to the authorizer of this broker when it is durable, before its response is sent. Other brokers
   read the pattern when they see the notification.
3. A pattern that cannot be read denies its resources until it is corrected; it is logged.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial

from kafkalite.callbacks import FanIn
from kafkalite.clock import Clock, Outcome, Then
from kafkalite.cluster.acls.changes import AclChange, Acls, Changed
from kafkalite.cluster.acls.reads import Stored, read_all, read_pattern
from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.repeated_reads import RepeatedReads
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.state.authorizer.acls import Acl, AclBinding, AclFilter, AclResourceType, PatternType, ResourcePattern
from kafkalite.state.authorizer.standard import StandardAuthorizer

LOGGER = logging.getLogger("kafkalite.cluster")

Deleted = list[tuple[AclBinding, Refusal | None]]


class AclStore:
    """Reads and changes the ACLs.

    Arguments:
        session: with the coordination service.
        authorizer: decides by them.
        clock: for pauses.
        notify: whether other brokers are notified of changes.
    """

    def __init__(self, session: Coordination, authorizer: StandardAuthorizer, clock: Clock, *, notify: bool) -> None:
        self.authorizer = authorizer
        self._session = session
        self._notify = notify
        self._reads = RepeatedReads("ACLs", clock)

    # Reads.

    def load(self, then: Then) -> None:
        """Read all ACLs, and apply them; `then` is called with the outcome."""

        def read(outcome: Outcome) -> None:
            if outcome.error is None:
                self._apply_all(outcome.value)
            then(outcome)

        read_all(self._session, read)

    def reload(self, then: Callable[[], object] = lambda: None) -> None:
        """Read all ACLs, and repeat it until it succeeds or the session ends; `then` is called after a success."""
        self._reads.run(self.load, then)

    def refresh(self, pattern: ResourcePattern) -> None:
        """Read the ACLs of a pattern, and apply them."""

        def read(then: Then) -> None:
            read_pattern(self._session, pattern, partial(self._refreshed, pattern, then))

        self._reads.run(read)

    def close(self) -> None:
        """Repeat no read any more."""
        self._reads.close()

    def _refreshed(self, pattern: ResourcePattern, then: Then, outcome: Outcome) -> None:
        if outcome.error is None:
            self._apply(pattern, outcome.value)
        then(outcome)

    def _apply_all(self, stored: dict[ResourcePattern, Stored]) -> None:
        for pattern in {*self.authorizer.patterns, *self.authorizer.invalid} - stored.keys():
            self._apply(pattern, ())
        for pattern, acls in stored.items():
            self._apply(pattern, acls)

    def _apply(self, pattern: ResourcePattern, acls: Stored) -> None:
        if isinstance(acls, ZnodeError):
            if self.authorizer.invalid.get(pattern) != str(acls):
                LOGGER.error("%s; all access to %s is denied until the node is corrected or deleted", acls, pattern)
                self.authorizer.invalidate(pattern, str(acls))
        else:
            self.authorizer.replace(pattern, acls)

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
                self._apply(pattern, end.after)
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
