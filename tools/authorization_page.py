"""Writes docs/authorization.md from the authorisation table: `python -m tools.authorization_page`."""

from pathlib import Path

from kafkalite.server.requests.authorization.table import TABLE, VERSION_MAX, Check, Effect, Row

PAGE = Path(__file__).parents[1] / "docs/authorization.md"
EFFECTS = {
    Effect.REFUSE: "request refused",
    Effect.FILTER: "entry refused",
    Effect.HIDE: "left out",
    Effect.BLANK: "not filled in",
}
HEAD = """# The rights of each request

What a principal needs to send a request to a broker with an authorizer. A request that is refused as a whole changes
nothing; a request with many topics, groups or transactional ids is refused entry by entry, and the others are served.
Nothing is created or appended before the checks. A refusal says nothing about whether a topic exists.

An allowed Read, Write, Delete or Alter allows Describe, an allowed AlterConfigs allows DescribeConfigs.

The keys from 10000 on are those of [protocol extensions](protocol-extensions.md). This page is generated from
`kafkalite/server/requests/authorization/table.py` by `python -m tools.authorization_page`.

| key | request | right | of | without it | error |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    lines = [line for key, row in sorted(TABLE.items()) for line in lines_of(key, row)]
    return HEAD + "\n".join(lines) + "\n"


def lines_of(key: int, row: Row) -> list[str]:
    """The lines of one API key."""
    if not row.checks:
        return [f"| {key} | {row.name} | none | | | |"]
    return [f"| {key} | {row.name} | {right(each)} | {of(each)} | {without(each)} |" for each in row.checks]


def right(check: Check) -> str:
    """The right, or one that suffices instead."""
    return f"{check.right}" if check.unless is None else f"{check.right}, or {check.unless}"


def of(check: Check) -> str:
    """The resources and the versions."""
    parts = [f"`{check.of}`"] if check.of else []
    parts += [check.note] if check.note else []
    if check.since:
        parts.append(f"from v{check.since} on")
    if check.until < VERSION_MAX:
        parts.append(f"up to v{check.until}")
    return "; ".join(parts)


def without(check: Check) -> str:
    """The effect and the error."""
    refused = check.effect in (Effect.REFUSE, Effect.FILTER)
    return f"{EFFECTS[check.effect]} | {check.error.name if refused else ''}"


if __name__ == "__main__":
    PAGE.write_text(page())
