"""Parses properties files as java.util.Properties.load reads them."""

import re
from collections.abc import Iterator

from kafkalite.config.keys import ConfigError

ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
BLANK = " \t\f"
HEX4 = re.compile(r"[0-9a-fA-F]{4}")


def parse_properties(path: str, data: bytes) -> dict[str, str]:
    """Parse comments, continued lines, separators and escapes like Java; raises ConfigError. Text that is not UTF-8 is
    Latin-1.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    found: dict[str, str] = {}
    for number, line in logical_lines(text):
        key, value = split_property(line)
        origin = f"{path}, line {number}"
        found[unescape(origin, key)] = unescape(origin, value)
    return found


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their number: continued ones joined, comments and empty ones skipped."""
    parts: list[str] = []
    first = 0
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        line = raw.lstrip(BLANK)
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join((*parts, line))
        parts = []
    if parts:
        yield first, "".join(parts)


def split_property(line: str) -> tuple[str, str]:
    """Return key and value: the key ends at the first `=`, `:` or blank without a backslash before it."""
    end = 0
    while end < len(line) and line[end] not in "=:" + BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(BLANK)
    return line[:end], rest


def unescape(origin: str, text: str) -> str:
    """Resolve backslashes; raises ConfigError for an invalid \\uXXXX."""
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            if char == "u":
                if not HEX4.fullmatch(text[at : at + 4]):
                    raise ConfigError("", f"{origin}: \\u needs four hexadecimal digits")
                char = chr(int(text[at : at + 4], 16))
                at += 4
            else:
                char = ESCAPES.get(char, char)
        out.append(char)
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
