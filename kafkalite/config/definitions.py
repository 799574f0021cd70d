"""Every key there is: the tables of the subjects joined, and what is said about a name that is in none of them."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kafkalite.config.keys import ConfigError, Key, Standing, Value
from kafkalite.config.table_groups import GROUP_KEYS
from kafkalite.config.table_security import REFUSED_PREFIXES, SECURITY_KEYS
from kafkalite.config.table_server import SERVER_KEYS
from kafkalite.config.table_topic import TOPIC_KEYS as TOPIC_ROWS
from kafkalite.config.table_topic import default_keys


def by_name(rows: Iterable[Key]) -> Mapping[str, Key]:
    """A table to look names up in; raises ValueError when a name has two rows."""
    table: dict[str, Key] = {}
    for row in rows:
        if row.name in table:
            raise ValueError(f"{row.name} is defined twice")
        table[row.name] = row
    return MappingProxyType(dict(sorted(table.items())))


BROKER_KEYS = by_name((*SERVER_KEYS, *default_keys(), *GROUP_KEYS, *SECURITY_KEYS))
TOPIC_KEYS = by_name(TOPIC_ROWS)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like this one, or None when none does."""
    import difflib  # only ever needed for a mistake

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return found[0] if found else None


def refuse_unsafe(name: str, text: str, value: Value, key: Key | None) -> None:
    """Raise ConfigError when a key asks for something that safety hangs on and that does not exist here."""
    if key is None:
        unsafe = name.startswith(REFUSED_PREFIXES)
    else:
        unsafe = key.standing is Standing.REFUSED and value != key.default and bool(text.strip())
    if unsafe:
        instead = (
            "" if key is None or key.default in (None, "", ()) else f"; only {key.text(key.default)!r} is possible"
        )
        raise ConfigError(name, f"{name} is not supported, and ignoring it would not be safe{instead}")


def markdown() -> str:
    """Every key as tables in Markdown, for the documentation."""
    lines = []
    for title, keys in (("Broker", BROKER_KEYS), ("Topic", TOPIC_KEYS)):
        lines += [f"## {title}", "", "| key | type | default | here | meaning |", "|---|---|---|---|---|"]
        for key in keys.values():
            default = key.text(key.default)
            shown = "" if default is None else f"`{default}`"
            standing = key.standing.name.lower().replace("_", " ")
            lines.append(f"| `{key.name}` | {key.type.name.lower()} | {shown} | {standing} | {key.doc} |")
        lines.append("")
    return "\n".join(lines)
