"""Which topics match the patterns of consumer groups. RE2 takes time in proportion to the text, whatever the pattern:
Python's own `re` could be kept busy for years by a client's (KIP-848 asks for RE2, too).

Matching many topics is a job outside the loop. Internal topics match no pattern: a group that reads its own commits
would never come to an end.
"""

from collections.abc import Callable, Collection
from functools import lru_cache, partial
from typing import Any, Protocol

from kafkalite.clock import Offload, Outcome
from kafkalite.cluster.image import ClusterTables
from kafkalite.coordinators.runtime import Runtime
from kafkalite.state.effects import Effects, Now, ResolvePatterns, Token
from kafkalite.state.group_shard import GroupShard
from kafkalite.state.topic_names import is_internal

__all__ = ["PatternHost", "Patterns", "complaint", "matches"]

PATTERN_MEMORY = 1 << 20  # bytes that RE2 may use for one pattern; it refuses larger ones


class PatternHost(Protocol):
    """The broker around."""

    @property
    def offload(self) -> Offload: ...

    @property
    def tables(self) -> ClusterTables: ...


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """A pattern, ready to match; raises re2.error."""
    import re2  # type: ignore[import-untyped]  # only where somebody has a pattern

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY
    return re2.compile(pattern, options)


def complaint(pattern: str) -> str | None:
    """Why RE2 does not take a pattern, or None where it does."""
    import re2

    try:
        compiled(pattern)
    except re2.error as error:
        said = error.args[0]
        return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return None


def matches(patterns: Collection[str], names: Collection[str]) -> dict[str, list[str]]:
    """The names that match each pattern whole. A pattern that RE2 does not take, of an older log say, matches none."""
    return {
        pattern: [] if complaint(pattern) else list(filter(compiled(pattern).fullmatch, names)) for pattern in patterns
    }


class Patterns:
    """Answers the questions of the machines."""

    def __init__(self, host: PatternHost, runtime: Runtime[GroupShard]) -> None:
        self._host = host
        self._runtime = runtime

    def ask(self, shard: int, question: ResolvePatterns) -> None:
        """Find the topics; the machine is told when they are found."""
        names = [name for name in self._host.tables.topics if not is_internal(name)]
        self._host.offload.run(matches, question.patterns, names, done=partial(self._found, shard, question))

    def _found(self, shard: int, question: ResolvePatterns, outcome: Outcome) -> None:
        told = failed if outcome.error is not None else resolved(outcome.value)
        self._runtime.submit(shard, partial(told, question.group))
        self._runtime.flush()
        outcome.result()


def resolved(found: dict[str, list[str]]) -> Callable[[str, GroupShard, Token, Now], Effects]:
    """The command that tells a group what its patterns match."""

    def tell(group: str, shard: GroupShard, _token: Token, now: Now) -> Effects:
        return shard.patterns_resolved(group, found, 0, now)

    return tell


def failed(group: str, shard: GroupShard, _token: Token, _now: Now) -> Effects:
    """The command that tells a group to ask again."""
    shard.patterns_failed(group)
    return Effects()
