"""Maps the distinguished name of a client's certificate to the name of a principal: `ssl.principal.mapping.rules`.

A translation of Kafka's SslPrincipalMapper.java. The text is a comma-separated list of `DEFAULT` (the whole name) and
`RULE:pattern/replacement/` with `L` or `U` for lower or upper case; the first rule that matches decides.
"""

import re
from typing import NamedTuple

_RULE_TEXT = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"[ \t\n\v\f\r]*({_RULE_TEXT})[ \t\n\v\f\r]*(?:,[ \t\n\v\f\r]*|$)")
_PARSER = re.compile(_RULE_TEXT)
_JAVA_GROUP = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")


class Rule(NamedTuple):
    """One rule; `pattern` None is DEFAULT. `case` is L, U or empty."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the name of the principal, None if the pattern does not match the whole distinguished name."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = self.pattern.sub(self._expanded, name)
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped

    def _expanded(self, match: re.Match[str]) -> str:
        return "".join(_expand(self.replacement, match))


class PrincipalMapper:
    """The rules of a listener.

    Arguments:
        text: ssl.principal.mapping.rules.

    Raises:
        ValueError: a rule does not parse.
    """

    def __init__(self, text: str) -> None:
        self.rules = tuple(rule for each in _split(text) if (rule := _parse(each)) is not None)

    def name_of(self, distinguished_name: str) -> str:
        """Return the name of the principal.

        Raises:
            ValueError: no rule matches.
        """
        for rule in self.rules:
            mapped = rule.apply(distinguished_name)
            if mapped is not None:
                return mapped
        raise ValueError(f"no rule of ssl.principal.mapping.rules applies to {distinguished_name}")


def _split(text: str) -> list[str]:
    stripped = text.strip()
    found, at = [], 0
    while at <= len(stripped):
        match = _SPLITTER.match(stripped, at)
        if match is None:
            raise ValueError(f"invalid rule: {stripped[at:]}")
        found.append(match[1])
        if match.end() == len(stripped) and not stripped[match.start() : match.end()].rstrip().endswith(","):
            break
        at = match.end() if match.end() > match.start() else match.end() + 1
    return found


def _parse(text: str) -> Rule | None:
    """Return a rule, None for an empty text; raises ValueError."""
    match = _PARSER.match(text)
    end = 0 if match is None else match.end()
    if match is None or end != len(text):
        raise ValueError(f"invalid rule: `{text}`, unmatched substring: `{text[end:]}`")
    if match[1] is not None:
        return Rule()
    if match[2] is None:
        return None
    try:
        pattern = re.compile(_JAVA_GROUP.sub(r"(?P<\1>", match[2]))
    except re.error as error:
        raise ValueError(f"invalid rule: `{text}`: {error}") from error
    return Rule(pattern, match[3], match[4])


def _expand(replacement: str, match: re.Match[str]) -> list[str]:
    """Return the parts of a replacement as Matcher.appendReplacement expands it: \\x is x, $1 a group.

    A reference to a group that does not exist is a literal text (SslPrincipalMapper.escapeLiteralBackReferences).
    """
    parts, at, groups = [], 0, match.re.groups
    while at < len(replacement):
        char = replacement[at]
        if char == "\\" and at + 1 < len(replacement):
            parts.append(replacement[at + 1])
            at += 2
            continue
        digits = re.compile(r"\d+").match(replacement, at + 1) if char == "$" else None
        if digits is None:
            parts.append(char)
            at += 1
            continue
        used = _group_digits(digits[0], groups)
        if used:
            parts.append(match[int(digits[0][:used])] or "")
        else:
            parts.append("$" + digits[0])
        at = at + 1 + (used or len(digits[0]))
    return parts


def _group_digits(digits: str, groups: int) -> int:
    """Return how many of these digits are the number of a group, 0 = there is no such group."""
    used = 1
    while used < len(digits) and int(digits[: used + 1]) <= groups:
        used += 1
    return used if int(digits[:used]) <= groups else 0
