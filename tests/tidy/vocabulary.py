"""Finds names and prose with words that have no fixed meaning, in code and documentation.

`NAMES` are words with a former private meaning: no identifier has them as a part. `PROSE` are words for which the
documentation uses a technical one ("receives", "no client", "again"). Strings are not read: many are messages and
test data; comments and docstrings are.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

NAMES = re.compile(
    r"(un)?settle[sd]?|settling|places?|tells?|told|hears?|heard|life|lives|calms?|lanes?|rounds?|turns?|points?|troubles?"
    r"|knocks?|party|parties|whims?|parked",
    re.IGNORECASE,
)
PROSE = re.compile(
    r"\b(settles?|settled|tells?|told|hears?|heard|calms?|knocks?|whims?|anew|mend|mended|nobody|somebody|whoever|parked"
    r"|as of old|for good)\b",
    re.IGNORECASE,
)
# Identifier -> why it may contain such a word.
ALLOWED = {
    "round": "the builtin function",
    "tell": "the method of files",
    "recovery_point": "Kafka's term, as are the other recovery points",
    "rounds": "the repetitions of a benchmark, as in pytest-benchmark",
    "ROUNDS": "the same",
    "_round": "the same",
}
ALLOWED_PARTS = re.compile(
    r"recovery_?points?|RECOVERY_?POINTS?|RecoveryPoints?|entry_?points?|EntryPoints?|end_?points?|code_?points?|round_?robin|RoundRobin|ROUND_?ROBIN"
    r"|round_?trips?|data_?points?|checkpoints?|timers?_round|turn_?over|floating_point|mount_?points|START_POINT|in_place|point_to"
)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*\b")


@cache
def banned_parts(name: str) -> tuple[str, ...]:
    """The words of an identifier that are banned."""
    if name in ALLOWED:
        return ()
    return tuple(word for word in WORD.findall(ALLOWED_PARTS.sub("", name)) if NAMES.fullmatch(word))


def of_python(text: str) -> Iterator[tuple[int, str]]:
    """(line, what) of each banned name, and of each banned word in a comment or docstring."""
    start = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        prose = token.type == tokenize.COMMENT or (token.type == tokenize.STRING and start)
        if token.type == tokenize.NAME and banned_parts(token.string):
            yield token.start[0], token.string
        elif prose:
            for found in PROSE.finditer(without_quoted(token.string)):
                yield token.start[0] + token.string.count("\n", 0, found.start()), found[0]
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            start = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def of_cython(text: str) -> Iterator[tuple[int, str]]:
    """The same of a Cython module, read line by line."""
    quoted = False
    for number, line in enumerate(text.splitlines(), 1):
        code, _, comment = line.partition("#")
        prose = comment if not quoted and '"""' not in code else line
        if not (quoted or '"""' in code):
            bare = re.sub(r'"[^"]*"|\'[^\']*\'', "", code)
            yield from ((number, name) for name in IDENTIFIER.findall(bare) if banned_parts(name))
        yield from ((number, found[0]) for found in PROSE.finditer(without_quoted(prose)))
        quoted ^= code.count('"""') % 2 == 1


def of_page(text: str) -> Iterator[tuple[int, str]]:
    """The same of a page of the documentation, without its code blocks."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        if not code:
            yield from ((number, found[0]) for found in PROSE.finditer(without_quoted(line)))


def without_quoted(text: str) -> str:
    """A text with its `quoted` names blanked out."""
    return re.sub(r"`[^`\n]*`", lambda found: " " * len(found[0]), text)


def banned(path: Path) -> list[tuple[int, str]]:
    """(line, name or word) of everything banned in a file."""
    readers = {".md": of_page, ".pyx": of_cython, ".pxd": of_cython}
    text = path.read_text()
    return list(readers.get(path.suffix, of_python)(text)) if may_be_banned(text) else []


def may_be_banned(text: str) -> bool:
    """Whether a text has a banned word anywhere, strings included; to tokenize all files takes half a minute."""
    return PROSE.search(text) is not None or any(map(banned_parts, set(IDENTIFIER.findall(text))))
