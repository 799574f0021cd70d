"""Finds what installed packages offer as entry points: a name of the configuration never becomes the name of a module.

Packages that are installed while the process runs are found after its next start.
"""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MECHANISMS = "kafkalite.sasl_mechanisms"
PRINCIPAL_BUILDERS = "kafkalite.principal_builders"


@cache  # reading the metadata of all packages takes 10 ms
def entry_points_of(group: str) -> "dict[str, EntryPoint]":
    """Return the entry points of a group, by name."""
    from importlib.metadata import entry_points  # 10 ms of import

    return {each.name: each for each in entry_points(group=group)}


def describe_group(group: str) -> str:
    """Return a group and the names of its entry points, for errors: `kafkalite.sasl_mechanisms (X-OTP)`."""
    return f"{group} ({', '.join(sorted(entry_points_of(group))) or 'none is installed'})"
