"""Rules for topic names: which are legal, and which collide (Topic.java: metric names turn '.' into '_')."""

import re

LENGTH_MAX = 249
LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def complaint(name: str) -> str | None:
    """Return the reason why a topic name is invalid, or None if it is valid."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > LENGTH_MAX:
        return f"Topic name is invalid: it is {len(name)} characters long, {LENGTH_MAX} are allowed"
    if LEGAL.fullmatch(name) is None:
        return f"Topic name is invalid: {name!r} holds other characters than ASCII letters, digits, '.', '_' and '-'"
    return None


def fold(name: str) -> str:
    """The name as metrics show it: those that collide fold to the same."""
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    return name in INTERNAL
