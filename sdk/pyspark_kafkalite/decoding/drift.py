"""How values differ from the declared schema. Pure: counts, which the commit of a batch contains."""

from collections import Counter
from typing import Any


class Drift:
    """Counts of one task or batch.

    Attributes:
        values: that were examined.
        added: fields that the schema lacks, (path, type) -> number of values with the field.
        differing: fields with another type than declared, (path, declared type, type) -> number of values.
    """

    def __init__(self) -> None:
        self.values = 0
        self.added: Counter[tuple[str, str]] = Counter()
        self.differing: Counter[tuple[str, str, str]] = Counter()

    def add(self, other: "Drift") -> None:
        """Add the counts of another task."""
        self.values += other.values
        self.added.update(other.added)
        self.differing.update(other.differing)

    def to_json(self) -> dict[str, Any]:
        """The counts as a JSON object."""
        return {
            "values": self.values,
            "added": [[*each, count] for each, count in sorted(self.added.items())],
            "differing": [[*each, count] for each, count in sorted(self.differing.items())],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Drift":
        """Read what `to_json` returned."""
        drift = cls()
        drift.values = fields["values"]
        drift.added.update({(path, found): count for path, found, count in fields["added"]})
        drift.differing.update({(path, declared, found): count for path, declared, found, count in fields["differing"]})
        return drift
