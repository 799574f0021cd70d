"""Reads the keys of the authorizer: its name, and the super users.

A name is that of one of Kafka's classes, whose rules are built in, or of an entry point of the group
`kafkalite.authorizers`: a callable that takes the texts of the configuration and returns an authorizer
(`state/authorizer/interface`). No class is loaded by a name from elsewhere.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from kafkalite.config.keys import ConfigError
from kafkalite.model import Principal

GROUP = "kafkalite.authorizers"
NAME_KEY, SUPER_USERS_KEY = "authorizer.class.name", "super.users"
BUILT_IN = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
JAVA_CLASS = re.compile(r"[a-z_][\w$]*(\.[\w$]+)+")


@cache
def installed_authorizers() -> dict[str, EntryPoint]:
    """Return the entry points of the group, by name."""
    return {each.name: each for each in entry_points(group=GROUP)}


def check_authorizer_name(name: str) -> None:
    """Raise ConfigError for a name that is neither built in nor installed; "" = no authorizer."""
    if not name or name in BUILT_IN or name in (installed := installed_authorizers()):
        return
    reason = "Java classes cannot be loaded" if JAVA_CLASS.fullmatch(name) else "there is no such entry point"
    known = ", ".join([*BUILT_IN, *sorted(installed)])
    raise ConfigError(NAME_KEY, f"{NAME_KEY}: {name}: {reason}; expected one of {known}")


def parse_super_users(text: str, *, any_type: bool = False) -> tuple[Principal, ...]:
    """Parse principals that `;` separates, such as `User:alice;User:CN=bob,O=x`; raises ConfigError.

    Arguments:
        text: of the key.
        any_type: a principal builder may return other types than `User`.
    """
    return tuple(_principals(text, any_type=any_type))


def _principals(text: str, *, any_type: bool) -> Iterator[Principal]:
    for each in filter(None, map(str.strip, text.split(";"))):
        principal_type, colon, name = each.partition(":")
        if not colon or not name:
            raise ConfigError(SUPER_USERS_KEY, f"{SUPER_USERS_KEY}: {each!r}: expected TYPE:NAME, such as User:{each}")
        if principal_type != "User" and not any_type:
            text = f"{SUPER_USERS_KEY}: {each!r}: no principal has the type {principal_type!r}, expected User:{name}"
            raise ConfigError(SUPER_USERS_KEY, text)
        yield Principal(principal_type, name)
