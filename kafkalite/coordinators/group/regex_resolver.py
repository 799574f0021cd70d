"""Which topics match the patterns of consumer groups. RE2 takes time in proportion to the text, whatever the pattern:
Python's own `re` could be kept busy for years by a client's (KIP-848 asks for RE2, too).

Laws:
1. A pattern is compiled on the loop, by RE2 with the GIL held: what would take it long is refused before. Classes of
   Unicode cost most, then quantifiers and what is counted; plain text costs little.
2. Nothing is captured: a match of a pattern with 10,000 groups took a second, without that it takes none.
3. Matching many topics is a job outside the loop. It walks the topics once for several patterns, no more of them than
   may be compiled at once (law 1); 100 patterns and 10,000 topics take it some 50 ms, one by one they took 1.5 s.
4. Internal topics match patterns of consumer groups, as in Kafka (TopicRegexResolver.java), but not those of registered
   groups: a group that reads its own commits never comes to an end.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Protocol

from kafkalite.clock import Offload, Outcome
from kafkalite.cluster.image import ClusterTables
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.state.effects import Effects, Now, ResolvePatterns, Token
from kafkalite.state.groups.shard import GroupShard
from kafkalite.state.topic_names import is_internal

__all__ = ["RegexHost", "RegexResolver", "complaint", "matches"]

PATTERN_MEMORY = 1 << 17  # bytes that RE2 may use for one pattern; it refuses larger ones
# Microseconds that RE2 takes at most, about: measured on patterns that consist of one of these alone.
COST_MAX, COST_OF_CLASS, COST_OF_QUANTIFIER, BYTES_AT_COST_1, COUNT_AT_COST_1 = 5_000, 100, 4, 2, 5
COST_OF_ONE, SHARE_COST_MAX = 10, 1_000  # of whatever is one of several; of several that are compiled at once
COSTLY = re.compile(r"\\[pP]|[?*+]|\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}")
TOO_COSTLY = "the pattern is too large, or counts too far"


class RegexHost(Protocol):
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
    options.never_capture = True
    return re2.compile(pattern, options)


def cost(pattern: str) -> int:
    """About how many microseconds RE2 takes to compile a pattern."""
    total = len(pattern.encode()) // BYTES_AT_COST_1
    for found in COSTLY.finditer(pattern):
        if found[0].startswith("\\"):
            total += COST_OF_CLASS
        else:
            total += COST_OF_QUANTIFIER + int(found[2] or found[1] or 0) // COUNT_AT_COST_1
    return total


@lru_cache(maxsize=256)
def complaint(pattern: str) -> str | None:
    """Why a pattern is not taken, or None where it is."""
    import re2

    if cost(pattern) > COST_MAX:
        return TOO_COSTLY
    try:
        compiled(pattern)
    except re2.error as error:
        said = error.args[0]
        return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return None


def matches(patterns: Collection[str], names: Collection[str]) -> dict[str, list[str]]:
    """The names that match each pattern whole. A pattern that RE2 does not take, of an older log say, matches none."""
    found: dict[str, list[str]] = {pattern: [] for pattern in patterns}
    for share in shares([pattern for pattern in found if complaint(pattern) is None]):
        matching = together(share).Match
        for name in names:
            for at in matching(name) or ():
                found[share[at]].append(name)
    return found


def shares(patterns: Sequence[str]) -> Iterator[list[str]]:
    """The patterns in shares that can be compiled at once (law 1)."""
    share: list[str] = []
    total = 0
    for pattern in patterns:
        total += cost(pattern) + COST_OF_ONE
        if share and total > SHARE_COST_MAX:
            yield share
            share, total = [], cost(pattern) + COST_OF_ONE
        share.append(pattern)
    if share:
        yield share


def together(patterns: Sequence[str]) -> Any:
    """Patterns that were all taken, as a set whose `Match(text)` answers the places of those that match it whole, or
    None. Its memory must never run out, as it would answer None then: what RE2 takes by itself is far more than needed.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    found = re2.Set.FullMatchSet(options)
    for pattern in patterns:
        found.Add(pattern)
    found.Compile()
    return found


class RegexResolver:
    """Answers the questions of the machines."""

    def __init__(self, host: RegexHost, runtime: CoordinatorRuntime[GroupShard]) -> None:
        self._host = host
        self._runtime = runtime

    def resolve(self, shard: int, question: ResolvePatterns) -> None:
        """Find the topics; the machine is told when they are found."""
        names = [name for name in self._host.tables.topics if question.internal or not is_internal(name)]
        self._host.offload.run(matches, question.patterns, names, done=partial(self._found, shard, question))

    def _found(self, shard: int, question: ResolvePatterns, outcome: Outcome) -> None:
        done = failed if outcome.error is not None else resolved(outcome.value)
        self._runtime.submit(shard, partial(done, question.group))
        self._runtime.write_pending()
        outcome.result()


def resolved(found: dict[str, list[str]]) -> Callable[[str, GroupShard, Token, Now], Effects]:
    """The command that tells a group what its patterns match."""

    def complete(group: str, shard: GroupShard, _token: Token, now: Now) -> Effects:
        return shard.patterns_resolved(group, found, 0, now)

    return complete


def failed(group: str, shard: GroupShard, _token: Token, _now: Now) -> Effects:
    """The command that tells a group to ask again."""
    shard.patterns_failed(group)
    return Effects()
