"""What transactional clients of a test have sent, read and decided, with the time of each event.

Every value is a number that is sent once, so a value names its send and its transaction. The checks are in `checker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from math import inf
from typing import NamedTuple

Partition = tuple[str, int]
DAMAGED = -1  # the number of a value that cannot be parsed


class Outcome(Enum):
    """What is known of a transaction."""

    OPEN = "no commit was requested"  # it may end by an abort only
    REQUESTED = "a commit was requested and not answered"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Source(NamedTuple):
    """An input record of a group."""

    partition: Partition
    offset: int


class Read(NamedTuple):
    """One record in the order in which a reader received it."""

    offset: int
    number: int
    at_s: float


@dataclass
class Send:
    """One value: its transaction, where it was sent, from which input record, and the acknowledged offset."""

    transaction: Transaction
    partition: Partition
    source: Source | None
    offset: int = -1


@dataclass(eq=False)
class Transaction:
    """One transaction of a producer; `requested_s` is the time of the first request for its commit."""

    name: str
    producer: str
    outcome: Outcome = Outcome.OPEN
    requested_s: float = inf
    numbers: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)


class History:
    """The events of a test.

    Arguments:
        clock: returns the time in seconds.

    Attributes:
        readers: the readers of committed records.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.sends: dict[int, Send] = {}
        self.transactions: list[Transaction] = []
        self.readers: dict[str, dict[Partition, list[Read]]] = {}
        self._clock = clock
        self._numbers = count(1)

    def begin(self, producer: str) -> Transaction:
        """A producer begins a transaction."""
        transaction = Transaction(f"{producer}/{len(self.transactions)}", producer)
        self.transactions.append(transaction)
        return transaction

    def sent(self, transaction: Transaction, partition: Partition, source: Source | None = None) -> int:
        """A value is about to be sent; returns its number."""
        number = next(self._numbers)
        self.sends[number] = Send(transaction, partition, source)
        transaction.numbers.append(number)
        return number

    def acknowledged(self, number: int, offset: int) -> None:
        """A broker has acknowledged a value."""
        self.sends[number].offset = offset

    def commit_requested(self, transaction: Transaction) -> None:
        """EndTxn is about to be sent: from now on the transaction may be committed."""
        if transaction.outcome is Outcome.OPEN:
            transaction.outcome = Outcome.REQUESTED
            transaction.requested_s = self._clock()

    def ended(self, transaction: Transaction, *, committed: bool) -> None:
        """The coordinator has confirmed the end."""
        transaction.outcome = Outcome.COMMITTED if committed else Outcome.ABORTED

    def reading(self, reader: str, partitions: Iterable[Partition]) -> None:
        """A reader of committed records begins on these partitions, also where it finds nothing."""
        for partition in partitions:
            self.readers.setdefault(reader, {}).setdefault(partition, [])

    def read(self, reader: str, partition: Partition, offset: int, number: int) -> None:
        """A reader of committed records has received a value; a transaction reads with `read_in`, too."""
        reads = self.readers.setdefault(reader, {}).setdefault(partition, [])
        reads.append(Read(offset, number, self._clock()))

    def read_in(self, transaction: Transaction, number: int) -> None:
        """A transaction processes a value."""
        transaction.reads.append(number)

    def all_reads(self) -> Iterator[tuple[str, Partition, Read]]:
        """Reader, partition and read of all readers."""
        for reader, partitions in self.readers.items():
            for partition, reads in partitions.items():
                for read in reads:
                    yield reader, partition, read

    def outcomes(self) -> dict[Outcome, int]:
        """The number of transactions of each outcome."""
        found = dict.fromkeys(Outcome, 0)
        for each in self.transactions:
            found[each.outcome] += 1
        return found


def number_of(value: bytes | None) -> int:
    """The number in a value, `DAMAGED` if there is none."""
    text = (value or b"").partition(b" ")[0]
    return int(text) if text.isdigit() else DAMAGED
