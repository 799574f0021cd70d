"""Joins the tables of all keys, and handles names that are in none of them."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kafkalite.config.keys import ConfigError, Key, Support, Update, Value
from kafkalite.config.table_dynamic import CLUSTER_WIDE_NAMES, LISTENER_LEVEL, MECHANISM_KEYS, PER_BROKER_NAMES
from kafkalite.config.table_groups import GROUP_KEYS
from kafkalite.config.table_log import FORMER_TOPIC_KEYS, default_keys
from kafkalite.config.table_log import TOPIC_KEYS as TOPIC_ROWS
from kafkalite.config.table_security import (
    LISTENER_HONOURED,
    REFUSAL_REASONS,
    REFUSED_PREFIXES,
    SECURITY_KEYS,
    ZOOKEEPER_SECURITY_KEYS,
)
from kafkalite.config.table_server import SERVER_KEYS


def by_name(rows: Iterable[Key]) -> Mapping[str, Key]:
    """Return the rows by name; raises ValueError if two rows have the same name."""
    table: dict[str, Key] = {}
    for row in rows:
        if row.name in table:
            raise ValueError(f"{row.name} is defined twice")
        table[row.name] = row
    return MappingProxyType(dict(sorted(table.items())))


def update_mode(name: str) -> Update:
    """Return how a broker's key may change at run time."""
    if name in CLUSTER_WIDE_NAMES:
        return Update.CLUSTER_WIDE
    return Update.PER_BROKER if name in PER_BROKER_NAMES else Update.READ_ONLY


def with_update_mode(rows: Iterable[Key]) -> Iterable[Key]:
    """Return the rows, with the update mode of those that a request may change."""
    for row in rows:
        mode = update_mode(row.name)
        yield row if mode is Update.READ_ONLY else row._replace(update=mode)


BROKER_KEYS = by_name(
    with_update_mode((*SERVER_KEYS, *default_keys(), *GROUP_KEYS, *SECURITY_KEYS, *ZOOKEEPER_SECURITY_KEYS))
)
TOPIC_KEYS = by_name(TOPIC_ROWS)
ACCEPTED_TOPIC_KEYS = by_name((*TOPIC_ROWS, *FORMER_TOPIC_KEYS))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar, None if none is."""
    import difflib  # only ever needed for a mistake

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error text: the known name that is most similar, or nothing."""
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else ""


def check_known(names: Iterable[str]) -> None:
    """Raise ConfigError for a name of a Python program that is no setting of a broker, so that a typing error does not
    go unnoticed. Files may have settings of other versions.
    """
    for name in names:
        if name not in BROKER_KEYS and not name.startswith((*REFUSED_PREFIXES, LISTENER_PREFIX)):
            raise ConfigError(name, f"{name} is no setting of a broker{did_you_mean(name, BROKER_KEYS)}")


LISTENER_PREFIX = "listener.name."
_LISTENER_KEY = re.compile(r"listener\.name\.[^.]+\.(.+)")
_PER_LISTENER = ("ssl.", "sasl.", "connections.max.reauth.ms", "principal.builder.class", *LISTENER_LEVEL)


def dynamic_key(name: str) -> Key | None:
    """Return the row of a broker's key that a request may change, also behind `listener.name.NAME.`; None for any
    other. Keys of listeners have no default of their own.
    """
    key = BROKER_KEYS.get(name)
    if key is None:
        key = listener_key(name)
    return None if key is None or key.update is Update.READ_ONLY else key


def listener_key(name: str) -> Key | None:
    """Return the row of a key behind `listener.name.NAME.` or `listener.name.NAME.MECHANISM.`; None for any other.

    Kafka's channel builders read these keys (ChannelBuilders.channelBuilderConfigs). Others are those of the broker.
    """
    found = _LISTENER_KEY.fullmatch(name)
    if found is None:
        return None
    base = found[1]
    key, of_mechanism = BROKER_KEYS.get(base), BROKER_KEYS.get(base.partition(".")[2])
    if key is not None and not base.startswith(_PER_LISTENER):
        return None
    if key is None and (of_mechanism is None or not of_mechanism.name.startswith(_PER_LISTENER)):
        return None
    row = key or of_mechanism
    assert row is not None
    support = Support.HONOURED if row.name in LISTENER_HONOURED else row.support
    return row._replace(name=name, default=None, support=support, update=_listener_mode(row.name))


def known_listener_key(name: str) -> Key:
    """Return the row of a key behind `listener.name.NAME.`; raises ConfigError for one that listeners do not have."""
    key = listener_key(name)
    if key is None:
        base = name.split(".", 3)[-1]
        hint = f": set {base} for the whole broker" if base in BROKER_KEYS else did_you_mean(base, BROKER_KEYS)
        raise ConfigError(name, f"{name} is no setting of a listener{hint}")
    return key


def _listener_mode(base: str) -> Update:
    if base in MECHANISM_KEYS or base in PER_BROKER_NAMES:
        return Update.PER_BROKER
    return Update.CLUSTER_WIDE if base in LISTENER_LEVEL else Update.READ_ONLY


def refuse_unsafe(name: str, text: str, value: Value, key: Key | None) -> None:
    """Raise ConfigError if a key requests something that safety depends on and that is not implemented.

    Arguments:
        name: of the key.
        text: as set.
        value: of the text.
        key: the row.
    """
    if key is None:
        unsafe = name.startswith(REFUSED_PREFIXES)
    else:
        unsafe = key.support is Support.REFUSED and value != key.default and bool(text.strip())
    if unsafe:
        instead = "" if key is None or key.default in (None, "", ()) else f"; it must be {key.text(key.default)!r}"
        reason = f" ({REFUSAL_REASONS[name]})" if name in REFUSAL_REASONS else ""
        raise ConfigError(name, f"{name} is not supported{reason}, and ignoring it is unsafe{instead}")
