"""Patterns of topics that the client resolves: RE2 text, matched against whole topic names.

google-re2 is imported when a pattern is used.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> Any:
    import re2  # type: ignore[import-untyped]  # used by patterns only

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"pattern {pattern!r}: RE2 rejects it: {text}") from None


def check_pattern(pattern: str) -> None:
    """Raises: ValueError if RE2 rejects a pattern."""
    _compiled(pattern)


def matching(pattern: str, excluded: str | None, topics: Iterable[str]) -> frozenset[str]:
    """The topics that a pattern matches as a whole.

    Arguments:
        pattern: RE2 text.
        excluded: RE2 text of topics to leave out, None = none.
        topics: names.
    """
    match = _compiled(pattern).fullmatch
    without = _compiled(excluded).fullmatch if excluded is not None else lambda topic: None
    return frozenset(topic for topic in topics if match(topic) and not without(topic))
