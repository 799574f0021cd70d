"""The subscription of a group member: topics, a pattern, static claims."""

from typing import NamedTuple

from kafkalite_sdk.membership.settings import NO_PARTITIONS, Partitions


class Subscription(NamedTuple):
    """What a member reads.

    Attributes:
        topics: by name.
        pattern: RE2 text of topics, None = none.
        claims: partitions that only this member reads (registered groups).
        excluded: RE2 text of topics that the pattern does not match, None = none.
    """

    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    claims: Partitions = NO_PARTITIONS
    excluded: str | None = None

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern is not None or self.claims)


NO_SUBSCRIPTION = Subscription()
