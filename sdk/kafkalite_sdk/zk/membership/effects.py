"""What the machine of a consumer asks its driver to do, and with which input the driver answers.

| effect | the driver | answers with |
|---|---|---|
| `Operation` | makes the call in the current session; a plain tuple is a `multi` | `completed`, `fired` |
| `Release` | stops fetching, drops prefetched records, calls the listener | `released` |
| `ReadPositions` | looks up how far the streams are | `positions_read` |
| `CommitOffsets` | writes them to the offset storage | `committed` |
| `ReadOffsets` | reads them from the offset storage | `offsets_read` |
| `Fetch` | begins to fetch | - |
| `CommitDone` | completes the call of the application | - |
| `Problem` | logs it | - |
| `Failed`, `Ended` | closes the session; the machine accepts no more input | - |

Rules for the driver:
1. Effects are executed in their order. An answer may be given at once, within the execution of the effect.
2. After `lost`, open operations of that session need no answer, and late ones are ignored. `Release`, `ReadPositions`,
   `CommitOffsets` and `ReadOffsets` are answered in any state.
3. Between `Release` and the next `Fetch` no stream returns a record of the released partitions.
4. The position of a partition is the offset behind the last record that its stream has returned to the application. A
   partition whose streams have returned nothing since its `Fetch` has the offset of the `Fetch`, or none.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kafkalite.coordination import tree
from kafkalite.coordination.znodes.consumers import StreamId
from kafkalite.model import TopicPartition

Positions: TypeAlias = Mapping[TopicPartition, int]


class Get(NamedTuple):
    """`Coordination.get`; the value of its outcome is (data, Stat)."""

    path: str
    watch: bool = False


class Exists(NamedTuple):
    """`Coordination.exists`; the value of its outcome is a Stat, or None."""

    path: str
    watch: bool = False


class Children(NamedTuple):
    """`Coordination.children`; the value of its outcome is (names, Stat)."""

    path: str
    watch: bool = False


# A read, one change, or all changes of a `multi` (`Coordination.create`, `set`, `delete`; `multi` for a tuple).
Read: TypeAlias = Get | Exists | Children
Change: TypeAlias = tree.Create | tree.Set | tree.Delete
Multi: TypeAlias = tuple[tree.Operation, ...]
Call: TypeAlias = Read | Change | Multi


class Operation(NamedTuple):
    """Make a call in the current session; answered by `completed(token, outcome, now)`, a watch by `fired(token, now)`.

    A Multi is a plain tuple, the other calls are named tuples: test `type(call) is tuple`.
    """

    token: int
    call: Call


class Release(NamedTuple):
    """Stop to fetch the partitions and drop their prefetched records; then call the rebalance listener.

    Answered by `released(token, positions, now)`, with the positions of `partitions`.

    Attributes:
        partitions: all that are fetched.
        lost: the consumer may not own them any more, because its session is over or has had no connection for the
            session timeout: the positions are not committed.
    """

    token: int
    partitions: frozenset[TopicPartition]
    lost: bool = False


class ReadPositions(NamedTuple):
    """Answer with the present positions of the partitions, `positions_read(token, positions, now)`; for a commit."""

    token: int
    partitions: frozenset[TopicPartition]


class CommitOffsets(NamedTuple):
    """Write offsets to the storage. Answered by `committed(token, outcome, now)`.

    The outcome has an error, which is about all partitions, or a mapping with the error of each partition that was not
    committed (empty or None = all are committed). Failed partitions are committed again by the machine.
    """

    token: int
    offsets: Positions


class ReadOffsets(NamedTuple):
    """Read offsets from the storage. Answered by `offsets_read(token, outcome, now)`.

    The outcome has an error, after which all are read again, or a mapping: the offset of each partition, None = no
    offset, or an exception = it is not valid (such a partition is reported, and owned but not fetched).
    """

    token: int
    partitions: frozenset[TopicPartition]


class FetchStart(NamedTuple):
    """Where the fetching of a partition begins.

    Attributes:
        stream: its number in the consumer, from 0.
        offset: the first one, None = the reset policy decides.
    """

    stream: int
    offset: int | None


class Fetch(NamedTuple):
    """The new assignment; what was fetched before is released.

    Attributes:
        partitions: of this consumer; may be empty.
        group: the stream that owns each partition of this consumer's topics, in the whole group, for the listener.
    """

    partitions: Mapping[TopicPartition, FetchStart]
    group: Mapping[TopicPartition, StreamId]


class CommitDone(NamedTuple):
    """The end of the commit that `commit` returned `ticket` for; None = it succeeded."""

    ticket: int
    error: Exception | None


class Problem(NamedTuple):
    """Something is ignored or repeated, for example a znode that is not valid; the text of the error names it."""

    error: Exception


class Failed(NamedTuple):
    """The consumer has ended with an error; its partitions are released, its nodes deleted if that was possible."""

    error: Exception


class Ended(NamedTuple):
    """The consumer has ended after `shut_down`."""


Effect: TypeAlias = (
    Operation | Release | ReadPositions | CommitOffsets | ReadOffsets | Fetch | CommitDone | Problem | Failed | Ended
)
