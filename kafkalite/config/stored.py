"""Reads stored dynamic configs of brokers key by key: what is invalid or unknown is left out, and nothing is raised.

A client of another version or an operator's tool may have written them, and a start must not end because of them.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.config.broker import BrokerConfig, parse_dynamic_values
from kafkalite.config.definitions import BROKER_KEYS, TOPIC_KEYS, did_you_mean, dynamic_key, nearest
from kafkalite.config.keys import ConfigError
from kafkalite.config.topic import DELETION_KEYS

if TYPE_CHECKING:
    from kafkalite.config.passwords.stored import StoredPasswords

DELETION_DEFAULTS = frozenset(
    synonym.name
    for name in DELETION_KEYS
    for synonym in TOPIC_KEYS[name].synonyms
    if dynamic_key(synonym.name) is not None
)
Texts = Mapping[str, str]


class StoredBrokerConfig(NamedTuple):
    """The snapshot of a broker with its stored configs, and a line for each that is not used; no line has a value of a
    password.
    """

    config: BrokerConfig
    problems: tuple[str, ...] = ()


class _Level(NamedTuple):
    """The stored texts of all brokers or of one: used, not used, and the keys about deletion among the latter."""

    valid: dict[str, str]
    ignored: dict[str, str]
    undefined: set[str]


def read_broker_config(before: BrokerConfig, default: Texts | None, own: Texts | None) -> StoredBrokerConfig:
    """Return the snapshot of a broker with these stored configs. It raises nothing.

    Arguments:
        before: with the static configs, and the stored ones that stay in force if others cannot be read.
        default: the stored texts of all brokers; None: they cannot be read.
        own: those of this broker; None: they cannot be read.

    A default that decides about the deletion of records and cannot be read is `undefined`, unless a stronger text is
    valid: topics without a config of their own are then not deleted from.
    """
    problems: list[str] = []
    for_all = _read(before, default, problems, all_brokers=True)
    for_one = _read(before, own, problems, all_brokers=False)
    for level in (for_all, for_one):
        _leave_out_contradictions(before, for_all, for_one, level, problems)
    undefined = (for_all.undefined - for_one.valid.keys()) | for_one.undefined
    config = BrokerConfig(
        before.static, for_all.valid, for_one.valid,
        ignored_default=for_all.ignored, ignored=for_one.ignored, undefined=frozenset(undefined),
        passwords=before.passwords,
    )  # fmt: skip
    return StoredBrokerConfig(config, tuple(problems))


def _read(before: BrokerConfig, texts: Texts | None, problems: list[str], *, all_brokers: bool) -> _Level:
    """Sort texts by whether they are valid one by one; those of an unreadable node stay as they were."""
    level = _Level({}, {}, set(DELETION_DEFAULTS) if texts is None else set())
    if texts is None:
        texts = before.stored_texts(all_brokers=all_brokers)
    for name, text in texts.items():
        error = wrong(name, text, before.passwords)
        if error is None:
            level.valid[name] = text
        else:
            problems.append(error)
            level.ignored[name] = text
            level.undefined.update(_meant(name))
    return level


def wrong(name: str, text: str, passwords: "StoredPasswords | None") -> str | None:
    """Return why a stored config of a broker is not used, None for one that is.

    Arguments:
        name, text: as stored.
        passwords: decrypts passwords; None: they are not used.
    """
    key = dynamic_key(name)
    if key is None:
        return f"{name} cannot be set for a running broker{did_you_mean(name, BROKER_KEYS)}"
    try:
        parse_dynamic_values({name: text}, passwords)
    except ConfigError as error:
        return f"{error}, or delete it" if key.sensitive else str(error)
    return None


def _meant(name: str) -> Collection[str]:
    """Return the defaults that decide about deletion and that a text with this name sets, or may be meant to set."""
    if name in DELETION_DEFAULTS:
        return (name,)
    near = nearest(name, DELETION_DEFAULTS) if dynamic_key(name) is None and name not in BROKER_KEYS else None
    return () if near is None else (near,)


def _leave_out_contradictions(
    before: BrokerConfig, for_all: _Level, for_one: _Level, level: _Level, problems: list[str]
) -> None:
    """Leave out the texts of one level that contradict the static configs or each other; those of all brokers are
    checked first, without those of this one.
    """
    others: Texts = {} if level is for_all else for_all.valid

    def error_of(texts: Texts) -> ConfigError | None:
        try:
            if level is for_all:
                BrokerConfig(before.static, texts, passwords=before.passwords)
            else:
                BrokerConfig(before.static, others, texts, passwords=before.passwords)
        except ConfigError as error:
            return error
        return None

    if level.valid and error_of(level.valid) is not None:
        kept: dict[str, str] = {}
        for name, text in sorted(level.valid.items()):
            error = error_of({**kept, name: text})
            if error is None:
                kept[name] = text
                continue
            problems.append(f"{name}: {error}")
            level.ignored[name] = text
            level.undefined.update(_meant(name))
        level.valid.clear()
        level.valid.update(kept)
