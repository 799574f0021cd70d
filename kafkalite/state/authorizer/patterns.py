"""Finds the patterns that apply to a resource in a time that does not depend on their number."""

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

from kafkalite.state.authorizer.acls import WILDCARD, AclResourceType, PatternType, ResourcePattern

Value = TypeVar("Value")


class PatternTable(Generic[Value]):
    """Values by resource pattern.

    A look-up compares the name, `*`, and one prefix per length that a prefixed pattern of the type has; names have at
    most 249 characters where they are topics.
    """

    def __init__(self) -> None:
        self.values: dict[ResourcePattern, Value] = {}
        self._lengths: dict[AclResourceType, Counter[int]] = {}

    def get(self, pattern: ResourcePattern) -> Value | None:
        """Return the value of exactly this pattern."""
        return self.values.get(pattern)

    def put(self, pattern: ResourcePattern, value: Value) -> None:
        """Set the value of a pattern."""
        if pattern.pattern_type is PatternType.PREFIXED and pattern not in self.values:
            self._lengths.setdefault(pattern.resource_type, Counter())[len(pattern.name)] += 1
        self.values[pattern] = value

    def remove(self, pattern: ResourcePattern) -> None:
        """Remove a pattern, if it is there."""
        if self.values.pop(pattern, None) is None or pattern.pattern_type is not PatternType.PREFIXED:
            return
        lengths = self._lengths[pattern.resource_type]
        lengths[len(pattern.name)] -= 1
        if not lengths[len(pattern.name)]:
            del lengths[len(pattern.name)]

    def matching(self, resource_type: AclResourceType, name: str) -> Iterator[tuple[ResourcePattern, Value]]:
        """Iterate over the patterns that apply to a resource, with their values."""
        for pattern in self._candidates(resource_type, name):
            value = self.values.get(pattern)  # type: ignore[call-overload]  # equal to the named tuple, and cheaper
            if value is not None:
                yield ResourcePattern._make(pattern), value

    def _candidates(
        self, resource_type: AclResourceType, name: str
    ) -> Iterator[tuple[AclResourceType, str, PatternType]]:
        yield resource_type, name, PatternType.LITERAL
        if name != WILDCARD:
            yield resource_type, WILDCARD, PatternType.LITERAL
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                yield resource_type, name[:length], PatternType.PREFIXED
