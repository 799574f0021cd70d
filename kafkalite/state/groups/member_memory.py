"""Bound on the memory that members of the classic protocol occupy by JoinGroup, over all shards of a broker.

Counted are members and the member ids that the broker has given out (KIP-394): `MEMBER_BYTES` each, plus their strings
and the metadata of their protocols. Apache Kafka has no such bound.

Invariants:
1. `held` of a shard is the sum of what its groups charge, after a replay as in normal operation.
2. The total contains a shard from `attach` (the shard is loaded) until `detach` (its machine ends).
3. Only growth is refused. A member that rejoins with no more metadata than before is accepted, also above the limit.
"""

from collections.abc import Callable

MEMBER_BYTES = 1024  # objects, table entries and the timer of one member, about
UNLIMITED = 2**63 - 1


class MemberMemory:
    """The total of a broker.

    Arguments:
        limit: bytes.
        refused: called for each join that is rejected because of the limit.
    """

    __slots__ = ("held", "limit", "refused")

    def __init__(self, limit: int = UNLIMITED, refused: Callable[[], object] = lambda: None) -> None:
        self.limit = limit
        self.refused = refused
        self.held = 0


class MachineMemory:
    """The part of one shard.

    Arguments:
        total: the broker's total, shared by all shards.
    """

    __slots__ = ("_attached", "held", "total")

    def __init__(self, total: MemberMemory | None = None) -> None:
        self.total = total or MemberMemory()
        self.held = 0
        self._attached = False

    def charge(self, growth: int) -> None:
        """Count bytes that a group holds from now on; negative = bytes that it has released."""
        self.held += growth
        if self._attached:
            self.total.held += growth

    def accepts(self, growth: int) -> bool:
        """Return whether a join may add `growth` bytes; a refusal is reported to the broker."""
        if growth <= 0 or self.total.held + growth <= self.total.limit:
            return True
        self.total.refused()
        return False

    def attach(self) -> None:
        """Add the memory of a loaded shard to the total."""
        if not self._attached:
            self._attached = True
            self.total.held += self.held

    def detach(self) -> None:
        """Release the memory of a shard whose machine ends."""
        if self._attached:
            self._attached = False
            self.total.held -= self.held
