"""A transition table that records the rows that are used."""

from typing import TypeVar

Key = TypeVar("Key")
Row = TypeVar("Row")


class CountedTable(dict[Key, Row]):
    """A copy of a table.

    Arguments:
        table: the rows.

    Attributes:
        used: the keys that were looked up.
    """

    def __init__(self, table: dict[Key, Row]) -> None:
        super().__init__(table)
        self.used: set[Key] = set()

    def __getitem__(self, key: Key) -> Row:
        self.used.add(key)
        return super().__getitem__(key)
