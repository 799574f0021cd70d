"""Finds the retention policies that packages offer as entry points of the group `kafkalite.retention_policies`.

A name of a request is only compared with those of the entry points; it never becomes the name of a module. Packages
that are installed while the process runs are found after its next start.
"""

from functools import cache
from typing import TYPE_CHECKING

from kafkalite.config.keys import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "kafkalite.retention_policies"
KEY = "kafkalite.retention.policy"


@cache  # reading the metadata of all packages takes 10 ms
def installed_policies() -> "EntryPoints":
    """Return the entry points of the group."""
    from importlib.metadata import entry_points  # 10 ms of import

    return entry_points(group=GROUP)


def check_policy_name(name: str) -> None:
    """Raise ConfigError unless exactly one installed package offers a policy of this name."""
    names = [each.name for each in installed_policies()]
    if names.count(name) > 1:
        raise ConfigError(KEY, f"Invalid value {name!r} for configuration {KEY}: several packages offer it in {GROUP}")
    if name not in names:
        known = ", ".join(sorted(names)) or "nothing: no installed package offers a policy"
        raise ConfigError(
            KEY,
            f"Invalid value {name!r} for configuration {KEY}: allowed is an entry point of {GROUP} that is installed on"
            f" the broker, here {known}",
        )
