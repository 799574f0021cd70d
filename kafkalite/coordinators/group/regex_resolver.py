"""Resolves topic patterns of groups with RE2, whose matching time is linear in the text for every pattern. Python's
`re` could be blocked for years by the pattern of a client. KIP-848 requires RE2 too.

Invariants:
1. RE2 compiles a pattern on the loop, with the GIL held: patterns that would take long are rejected before. Unicode
   classes cost most, then quantifiers and repetition counts; plain text costs little.
2. Nothing is captured: with captures, a match of a pattern with 10,000 groups took a second.
3. Matching many topics is a job outside the loop. It matches several patterns in one pass over the topics, as many as
   may be compiled at once (rule 1): 100 patterns and 10,000 topics take about 50 ms, one by one they took 1.5 s.
4. Internal topics match patterns of consumer groups, as in Kafka (TopicRegexResolver.java), but not those of registered
   groups: a group that reads its own commits would never reach the end.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Protocol

from kafkalite.clock import Offload, Outcome
from kafkalite.cluster.metadata.image import ClusterTables
from kafkalite.coordinators.runtime.runtime import CoordinatorRuntime
from kafkalite.state.effects import Effects, Now, ResolvePatterns, Token
from kafkalite.state.groups.machine import GroupMachine
from kafkalite.state.topic_names import is_internal

PATTERN_MEMORY = 1 << 17  # bytes that RE2 may use for one pattern; it rejects larger ones
# Approximate upper bounds in microseconds, measured on patterns that consist of one of these alone.
COST_MAX, COST_OF_CLASS, COST_OF_QUANTIFIER, BYTES_AT_COST_1, COUNT_AT_COST_1 = 5_000, 100, 4, 2, 5
COST_OF_ONE, SHARE_COST_MAX = 10, 1_000  # per pattern of a set; of a set
COSTLY = re.compile(r"\\[pP]|[?*+]|\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}")
TOO_COSTLY = "the pattern is too large, or counts too far"


class RegexHost(Protocol):
    """The broker, as the resolver needs it."""

    @property
    def offload(self) -> Offload: ...

    @property
    def tables(self) -> ClusterTables: ...


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    """Compile a pattern. Raises: re2.error."""
    import re2  # type: ignore[import-untyped]  # imported for the first pattern only

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY
    options.never_capture = True
    return re2.compile(pattern, options)


def cost(pattern: str) -> int:
    """The approximate time that RE2 takes to compile a pattern, in microseconds."""
    total = len(pattern.encode()) // BYTES_AT_COST_1
    for found in COSTLY.finditer(pattern):
        if found[0].startswith("\\"):
            total += COST_OF_CLASS
        else:
            total += COST_OF_QUANTIFIER + int(found[2] or found[1] or 0) // COUNT_AT_COST_1
    return total


@lru_cache(maxsize=256)
def complaint(pattern: str) -> str | None:
    """The reason why a pattern is rejected, None if it is accepted."""
    import re2

    if cost(pattern) > COST_MAX:
        return TOO_COSTLY
    try:
        compile_pattern(pattern)
    except re2.error as error:
        reason = error.args[0]
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return None


def matches(patterns: Collection[str], names: Collection[str]) -> dict[str, list[str]]:
    """The names that each pattern matches as a whole. A rejected pattern, of an older log for example, matches none."""
    found: dict[str, list[str]] = {pattern: [] for pattern in patterns}
    for share in shares([pattern for pattern in found if complaint(pattern) is None]):
        matching = together(share).Match
        for name in names:
            for at in matching(name) or ():
                found[share[at]].append(name)
    return found


def shares(patterns: Sequence[str]) -> Iterator[list[str]]:
    """Split patterns into sets that may be compiled at once (rule 1)."""
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
    """Compile accepted patterns as a set. `Match(text)` returns the indexes of the patterns that match the whole text,
    or None. It would also return None out of memory: RE2's default limit is far above what a set needs.
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
    """Resolves the patterns that machines ask for (`ResolvePatterns`)."""

    def __init__(self, host: RegexHost, runtime: CoordinatorRuntime[GroupMachine]) -> None:
        self._host = host
        self._runtime = runtime

    def resolve(self, partition: int, question: ResolvePatterns) -> None:
        """Find the topics in a job, then submit the result to the machine."""
        names = [name for name in self._host.tables.topics if question.internal or not is_internal(name)]
        self._host.offload.run(matches, question.patterns, names, done=partial(self._found, partition, question))

    def _found(self, partition: int, question: ResolvePatterns, outcome: Outcome) -> None:
        done = abandon if outcome.error is not None else apply_matches(outcome.value)
        self._runtime.submit(partition, partial(done, question.group))
        self._runtime.write_pending()
        outcome.result()


def apply_matches(found: dict[str, list[str]]) -> Callable[[str, GroupMachine, Token, Now], Effects]:
    """The command that passes the matching topics to a group."""

    def complete(group: str, machine: GroupMachine, _token: Token, now: Now) -> Effects:
        return machine.patterns_resolved(group, found, now)

    return complete


def abandon(group: str, machine: GroupMachine, _token: Token, _now: Now) -> Effects:
    """The command that makes a group ask again later."""
    machine.patterns_failed(group)
    return Effects()
