"""What a procedure of the machine waits for.

A procedure is a generator: it yields a step, the machine carries the step out and sends its result. So a rebalance is
written in the order in which it happens, without I/O.
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from kafkalite.model import TopicPartition
from kafkalite_sdk.zk.membership.effects import Call, Positions

T = TypeVar("T")


class Calls(NamedTuple):
    """Calls of the session, in this order; the result is a list with the Outcome of each."""

    calls: Sequence[Call]


class Stop(NamedTuple):
    """Stop the fetching of all partitions; the result is their positions. Raises ReleaseTimeoutError."""

    lost: bool = False


class Commit(NamedTuple):
    """Commit the positions of a release, and wait for earlier commits; the result is None, errors are reported."""

    positions: Positions


class Offsets(NamedTuple):
    """Read the offsets of partitions; the result is an Outcome."""

    partitions: frozenset[TopicPartition]


class Wait(NamedTuple):
    """Wait for any input that changes the state, at most until a time (None = no limit); the result is None."""

    until: float | None = None


Step: TypeAlias = Calls | Stop | Commit | Offsets | Wait
Procedure: TypeAlias = Generator[Step, Any, T]
