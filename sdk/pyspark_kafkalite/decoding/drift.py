"""Differences between values and the declared schema. Pure: counts, which the commit of a batch contains."""

from collections import Counter
from typing import Any

NAMES_MAX = 200
"""Fields that are counted by name: a commit contains the counts, and each start reads all commits."""

PATH_CHARACTERS = 200


class Drift:
    """Counts of one task or batch.

    Attributes:
        values: that were examined.
        added: fields that the schema lacks, (path, type) -> number of values with the field. At most NAMES_MAX.
        others: the same number for all fields beyond them.
        differing: fields with another type than declared, (path, declared type, type) -> number of values.
    """

    def __init__(self) -> None:
        self.values = 0
        self.added: Counter[tuple[str, str]] = Counter()
        self.others = 0
        self.differing: Counter[tuple[str, str, str]] = Counter()

    def count_added(self, path: str, found: str, values: int = 1) -> None:
        """Count a field that the schema lacks.

        Arguments:
            path: of the field.
            found: its type.
            values: that have it.
        """
        key = (path[:PATH_CHARACTERS], found)
        if key in self.added or len(self.added) < NAMES_MAX:
            self.added[key] += values
        else:
            self.others += values

    def add(self, other: "Drift") -> None:
        """Add the counts of another task."""
        self.values += other.values
        for (path, found), values in other.added.items():
            self.count_added(path, found, values)
        self.others += other.others
        self.differing.update(other.differing)

    def to_json(self) -> dict[str, Any]:
        """The counts as a JSON object."""
        return {
            "values": self.values,
            "added": [[*each, count] for each, count in sorted(self.added.items())],
            "others": self.others,
            "differing": [[*each, count] for each, count in sorted(self.differing.items())],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Drift":
        """Read what `to_json` returned."""
        drift = cls()
        drift.values = fields["values"]
        drift.added.update({(path, found): count for path, found, count in fields["added"]})
        drift.others = fields.get("others", 0)
        drift.differing.update({(path, declared, found): count for path, declared, found, count in fields["differing"]})
        return drift
