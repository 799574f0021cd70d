"""Validates configuration by request: DescribeConfigs, topic creation and the two Alter requests.

Everything is decided on texts before anything is stored; a rejection is a `ConfigError` with the Kafka error code.
Sources: ConfigHelper.scala and ConfigAdminManager.scala of Kafka, KIP-226 (sources and synonyms), KIP-339 (operations).
"""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kafkalite.config.broker import BrokerConfig, parse_dynamic_values
from kafkalite.config.definitions import (
    ACCEPTED_TOPIC_KEYS,
    BROKER_KEYS,
    LISTENER_PREFIX,
    TOPIC_KEYS,
    did_you_mean,
    dynamic_key,
    listener_key,
)
from kafkalite.config.group import GROUP_CONFIG_KEYS, check_group_configs, group_values
from kafkalite.config.keys import ConfigError, Key, Support, Type, Update, Value, valid_texts
from kafkalite.config.stored import wrong
from kafkalite.config.table_dynamic import LISTENER_ONLY
from kafkalite.config.topic import LAGS, parse_topic_value
from kafkalite.errors import KafkaErrorCode

HINTS = {  # by support of a key that cannot change at run time
    Support.HONOURED: "; it is read at the start: set it in the file of the broker, and start the broker again",
    Support.WITHOUT_EFFECT: "; it has no effect in this version",
    Support.REFUSED: "; it is not supported in this version",
}


class Source(enum.IntEnum):
    """The origin of a value, with DescribeConfigs' numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP = 8


class Operation(enum.IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One operation on one key; `value` is None only for DELETE."""

    name: str
    operation: int
    value: str | None


class SettingSynonym(NamedTuple):
    """A possible origin of a value; the first of a setting's synonyms is the actual one."""

    name: str
    value: str | None
    source: Source


class Setting(NamedTuple):
    """One key as DescribeConfigs shows it. The value of a sensitive key and of an unknown one is None."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    type: Type
    doc: str
    synonyms: tuple[SettingSynonym, ...]


# Describing.


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[Setting]:
    """Return the configs of a topic by name.

    Arguments:
        config: of the broker.
        overrides: texts set on the topic, also invalid ones.
        names: the requested configs, of which those that exist are returned; None = all.
    """
    effective, _problems = config.stored_topic_config(overrides)
    found = [
        synonymous_setting(
            config, key, key.text(getattr(effective, key.name.replace(".", "_"))), overrides, Source.TOPIC
        )
        for key in chosen(TOPIC_KEYS, names)
    ]
    return with_others(found, TOPIC_KEYS, ACCEPTED_TOPIC_KEYS, overrides, names, Source.TOPIC)


def with_others(
    settings: list[Setting],
    described: Mapping[str, object],
    keys: Mapping[str, Key],
    texts: Mapping[str, str],
    names: Iterable[str] | None,
    source: Source,
) -> list[Setting]:
    """Add the stored configs that are not in `described`, by name.

    As in Kafka, an unknown one is shown without its value, which may be a secret (ConfigHelper.scala).

    Arguments:
        settings: of the rows in `described`.
        described: the names that are shown already.
        keys: the rows of other names.
        texts: as stored.
        names: the requested configs; None = all.
        source: of the stored configs.
    """
    wanted = texts.keys() - described.keys()
    if names is not None:
        wanted &= set(names)
    for name in wanted:
        key = keys.get(name)
        hidden = key is None or key.sensitive
        value = None if hidden else texts[name]
        value_type, doc = (Type.UNKNOWN, "") if key is None else (key.type, key.doc)
        synonyms = (SettingSynonym(name, value, source),)
        settings.append(Setting(name, value, source, False, hidden, value_type, doc, synonyms))
    return sorted(settings) if wanted else settings


def synonymous_setting(
    config: BrokerConfig, key: Key, value: str | None, overrides: Mapping[str, str], own: Source
) -> Setting:
    """Return one config of a topic or a group, which has broker configs as defaults.

    Arguments:
        config: of the broker.
        key: of the config.
        value: the one in effect.
        overrides: the configs set for the topic or group, by name.
        own: the source if it is set there.
    """
    synonyms = [
        entry
        for at, synonym in enumerate(key.synonyms)
        for entry in broker_synonyms(config, synonym.name, with_default=at == 0)
    ]
    if key.name in overrides:
        value = key.shown(value, overrides[key.name])
        synonyms.insert(0, SettingSynonym(key.name, value, own))
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return Setting(key.name, value, source, False, key.sensitive, key.type, key.doc, tuple(synonyms))


def describe_broker(config: BrokerConfig, names: Iterable[str] | None = None) -> list[Setting]:
    """Return the configs of the broker by name, those of listeners and unknown stored ones included; `names`: only
    these.
    """
    names = None if names is None else list(names)
    own, default = (config.stored_texts(all_brokers=each) for each in (False, True))
    keys = dict(BROKER_KEYS)
    for name in {*own, *default, *config.static} - keys.keys():
        if (key := dynamic_key(name) or listener_key(name)) is not None:
            keys[name] = key
    found = [broker_setting(config, key) for key in chosen(keys, names)]
    found = with_others(found, {**keys, **own}, {}, default, names, Source.DYNAMIC_DEFAULT_BROKER)
    return with_others(found, keys, {}, own, names, Source.DYNAMIC_BROKER)


def broker_setting(config: BrokerConfig, key: Key) -> Setting:
    """Return one config of the broker. A stored value that is not used is shown as the first synonym."""
    synonyms = broker_synonyms(config, key.name, with_default=True)
    source = synonyms[0].source if synonyms else Source.DEFAULT
    value = None if key.sensitive else key.text(config.values[key.name]) if key.name in config.values else None
    if synonyms and not key.sensitive and source in (Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER):
        value = key.shown(value, synonyms[0].value or "")
    return Setting(key.name, value, source, not changeable(key), key.sensitive, key.type, key.doc, synonyms)


def describe_group(
    config: BrokerConfig, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[Setting]:
    """Return the configs of a group, or those of `names` that exist, by name."""
    values = group_values(config.values, overrides)
    found = [
        synonymous_setting(config, key, key.text(values[key.name]), overrides, Source.GROUP)
        for key in chosen(GROUP_CONFIG_KEYS, names)
    ]
    return with_others(found, GROUP_CONFIG_KEYS, GROUP_CONFIG_KEYS, overrides, names, Source.GROUP)


def known_broker_key(name: str) -> Key:
    """Return the row of a broker's key, also behind `listener.name.NAME.`; raises KeyError for any other."""
    return BROKER_KEYS.get(name) or listener_key(name) or BROKER_KEYS[name]


def broker_synonyms(config: BrokerConfig, name: str, *, with_default: bool) -> tuple[SettingSynonym, ...]:
    """Return the origins that have a value for a broker's key, the strongest first: the same for each topic."""
    found: tuple[SettingSynonym, ...] | None = config.synonyms.get((name, with_default))
    if found is None:
        found = config.synonyms[name, with_default] = tuple(find_synonyms(config, known_broker_key(name), with_default))
    return found


def origins_of(config: BrokerConfig) -> tuple[tuple[Mapping[str, str], Source], ...]:
    """Return the texts of a broker by origin, the strongest first."""
    return (
        (config.stored_texts(all_brokers=False), Source.DYNAMIC_BROKER),
        (config.stored_texts(all_brokers=True), Source.DYNAMIC_DEFAULT_BROKER),
        (config.static, Source.STATIC_BROKER),
    )


def find_synonyms(config: BrokerConfig, key: Key, with_default: bool) -> list[SettingSynonym]:
    found = [
        SettingSynonym(key.name, None if key.sensitive else texts[key.name], source)
        for texts, source in origins_of(config)
        if key.name in texts
    ]
    if with_default and key.default is not None:
        found.append(SettingSynonym(key.name, None if key.sensitive else key.text(key.default), Source.DEFAULT))
    return found


def chosen(keys: Mapping[str, Key], names: Iterable[str] | None) -> list[Key]:
    """Return the rows of these names; None = all."""
    return list(keys.values()) if names is None else [keys[name] for name in sorted(keys.keys() & set(names))]


# Changing a topic.


def check_topic_configs(
    config: BrokerConfig, configs: Mapping[str, str | None], current: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the texts to store for a topic with exactly these configs.

    Arguments:
        config: of the broker.
        configs: texts by key.
        current: the stored texts, which are not checked where they stay.
    Raises ConfigError for an invalid one.
    """
    return checked_topic_configs(config, configs, different(configs, current or {}))


def different(configs: Mapping[str, str | None], current: Mapping[str, str]) -> set[str]:
    """Return the names of the texts that are not the stored ones."""
    return {name for name, text in configs.items() if text is None or current.get(name) != text}


def checked_topic_configs(
    config: BrokerConfig, configs: Mapping[str, str | None], changed: Collection[str]
) -> dict[str, str]:
    """Return texts to store; raises ConfigError if one of the changed ones is invalid, or contradicts another one."""
    for name in changed:
        if name in configs:
            parse_topic_value(name, configs[name])
    texts = {name: text for name, text in configs.items() if text is not None}
    valid, _errors = valid_texts(texts, parse_topic_value)
    if not LAGS.isdisjoint(changed):
        config.check_topic_config(valid)
    return texts


def alter_topic(config: BrokerConfig, current: Mapping[str, str], alterations: Sequence[Alteration]) -> dict[str, str]:
    """Return the texts of a topic after these operations on the stored ones. Invalid ones among those stay as they are
    where no operation names them. Raises ConfigError.
    """
    effective, _problems = config.stored_topic_config(current)

    def value_of(key: Key) -> Value:
        value: Value = getattr(effective, key.name.replace(".", "_"), key.default)
        return value

    changed = apply_alterations(ACCEPTED_TOPIC_KEYS, current, alterations, value_of, "topic")
    return checked_topic_configs(config, changed, {each.name for each in alterations})


def alter_group(config: BrokerConfig, current: Mapping[str, str], alterations: Sequence[Alteration]) -> dict[str, str]:
    """Return the texts of a group after these operations on the stored ones, as `alter_topic`; raises ConfigError."""
    values = group_values(config.values, current)
    changed = apply_alterations(GROUP_CONFIG_KEYS, current, alterations, lambda key: values[key.name], "group")
    return check_group_configs(config.values, changed, {each.name for each in alterations})


# Changing a broker.


def check_broker_configs(
    config: BrokerConfig, configs: Mapping[str, str | None], current: Mapping[str, str], *, all_brokers: bool
) -> dict[str, str]:
    """Return the texts to store when the dynamic configs become exactly these.

    Arguments:
        config: of the broker.
        configs: texts by key.
        current: the stored texts, which are not checked where they stay.
        all_brokers: the configs are for all brokers, not for this one.
    Raises ConfigError: INVALID_REQUEST for a key that cannot change at run time, INVALID_CONFIG for a wrong value.
    """
    return checked_broker_configs(config, configs, different(configs, current), all_brokers=all_brokers)


def checked_broker_configs(
    config: BrokerConfig, configs: Mapping[str, str | None], changed: Collection[str], *, all_brokers: bool
) -> dict[str, str]:
    """Return texts to store; raises ConfigError if one of the changed ones is invalid, or contradicts another one."""
    texts: dict[str, str] = {}
    for name, text in configs.items():
        if text is None:
            raise ConfigError(name, f"Null value not supported for : {name}", KafkaErrorCode.INVALID_REQUEST)
        if name in changed:
            check_changeable(name, all_brokers=all_brokers)
            text = text_to_store(config, name, text)
        texts[name] = text
    new = {name: texts[name] for name in changed if name in texts}
    parse_dynamic_values(new, config.passwords)
    used = {name: text for name, text in texts.items() if name in new or wrong(name, text, config.passwords) is None}
    stays = {name: text for name, text in used.items() if name not in new}
    error = contradiction(config, used, all_brokers=all_brokers)
    if error is not None and contradiction(config, stays, all_brokers=all_brokers) is None:
        raise error
    return texts


def contradiction(config: BrokerConfig, texts: Mapping[str, str], *, all_brokers: bool) -> ConfigError | None:
    """Return the error of dynamic texts that contradict each other or the other configs of the broker, else None."""
    try:
        if all_brokers:
            BrokerConfig(config.static, texts, config.dynamic, passwords=config.passwords)
        else:
            BrokerConfig(config.static, config.dynamic_default, texts, passwords=config.passwords)
    except ConfigError as error:
        return error
    return None


def alter_broker(
    config: BrokerConfig, current: Mapping[str, str], alterations: Sequence[Alteration], *, all_brokers: bool
) -> dict[str, str]:
    """Return the dynamic texts of this broker, or of all, after these operations on the stored ones, as `alter_topic`;
    raises ConfigError.
    """
    for alteration in alterations:
        if alteration.operation != Operation.DELETE or alteration.name not in current:
            check_changeable(alteration.name, all_brokers=all_brokers)
    keys = {**BROKER_KEYS, **{each.name: key for each in alterations if (key := dynamic_key(each.name))}}
    changed = apply_alterations(keys, current, alterations, partial(stored_value, config, current), "broker")
    names = {each.name for each in alterations}
    return checked_broker_configs(config, changed, names, all_brokers=all_brokers)


def stored_value(config: BrokerConfig, current: Mapping[str, str], key: Key) -> Value:
    """Return the value of a broker's key for an operation on a list: the stored one, if it is valid."""
    text = current.get(key.name)
    if text is not None and wrong(key.name, text, config.passwords) is None:
        return key.parse(text)
    return config.values.get(key.name)


def changeable(key: Key) -> bool:
    """Return whether a broker's key can change at run time."""
    return key.update is not Update.READ_ONLY


def check_changeable(name: str, *, all_brokers: bool) -> None:
    """Raise ConfigError with INVALID_REQUEST unless the key can be changed by request."""
    key = dynamic_key(name)
    if key is None:
        wrong_name = f"Cannot update these configs dynamically: {name}{hint_for_unchangeable(name)}"
    elif name in LISTENER_ONLY:
        wrong_name = (
            f"These security configs can be dynamically updated only per-listener using the listener prefix: {name}"
        )
    elif all_brokers and key.update is Update.PER_BROKER:
        wrong_name = f"Cannot update these configs at default cluster level: {name}"
    else:
        return
    raise ConfigError(name, wrong_name, KafkaErrorCode.INVALID_REQUEST)


def hint_for_unchangeable(name: str) -> str:
    """Return the end of an error text for a broker's key that cannot change at run time: the next step, if any."""
    key = BROKER_KEYS.get(name)
    if key is None:
        return did_you_mean(name, BROKER_KEYS)
    return HINTS[key.support]


def text_to_store(config: BrokerConfig, name: str, text: str) -> str:
    """Return the text that is stored for a new value: a password is encrypted (DynamicBrokerConfig.scala).

    Arguments:
        config: of the broker, with its secret.
        name: of the config.
        text: its value.

    Raises ConfigError with INVALID_REQUEST for a password on a broker without a secret.
    """
    key = dynamic_key(name)
    if key is None or not key.sensitive:
        return text
    if config.passwords is None:
        wanted = "it is not stored in clear text: set password.encoder.secret of the broker"
        raise ConfigError(name, f"{name} is a password: {wanted}", KafkaErrorCode.INVALID_REQUEST)
    return config.passwords.encode(name, text)


# Honoured keys that a running broker does not take over: stored, and in force with its next start.
AT_START = frozenset(
    (
        "listener.security.protocol.map",
        "listeners",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connections.per.ip.overrides",
        "num.recovery.threads.per.data.dir",
        "principal.builder.class",
        "sasl.enabled.mechanisms",
        "sasl.mechanism.inter.broker.protocol",
    )
)


# The same for keys behind `listener.name.NAME.`.
AT_START_OF_LISTENERS = (
    ".sasl.enabled.mechanisms",
    ".connections.max.reauth.ms",
    ".sasl.server.max.receive.size",
    ".principal.builder.class",
)


def not_in_force(before: Mapping[str, str], texts: Mapping[str, str]) -> list[str]:
    """Return log lines for changed dynamic configs without effect now; no values, as they may be passwords."""
    notices = []
    for name in sorted(name for name, text in texts.items() if before.get(name) != text):
        key = dynamic_key(name)
        if name in AT_START or (name.startswith(LISTENER_PREFIX) and name.endswith(AT_START_OF_LISTENERS)):
            notices.append(f"{name} is stored and takes effect with the next start of the broker")
        elif key is not None and key.support is not Support.HONOURED:
            notices.append(f"{name} is stored and has no effect in this version")
    return notices


# Operations.


def apply_alterations(
    keys: Mapping[str, Key],
    current: Mapping[str, str],
    alterations: Sequence[Alteration],
    value_of: Callable[[Key], Value],
    kind: str,
) -> dict[str, str | None]:
    """Return the texts after these operations; raises ConfigError.

    Arguments:
        keys: the rows by name.
        current: the texts before.
        alterations: the operations in their order.
        value_of: returns the effective value of a key that is not set, for list operations.
        kind: of the resource, for errors.
    """
    names = [alteration.name for alteration in alterations]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ConfigError(
            twice[0], f"Error due to duplicate config keys : {','.join(twice)}", KafkaErrorCode.INVALID_REQUEST
        )
    changed: dict[str, str | None] = dict(current)
    for name, operation, text in alterations:
        if operation == Operation.DELETE:
            if name not in current:
                known(keys, name, kind)
            changed.pop(name, None)
        elif text is None:
            raise ConfigError(name, f"Null value not supported for : {name}", KafkaErrorCode.INVALID_REQUEST)
        elif operation == Operation.SET:
            changed[name] = text
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            key = known(keys, name, kind)
            changed[name] = altered_list(key, value_of(key), Operation(operation), text)
        else:
            raise ConfigError(name, f"Unknown operation {operation} for {name}", KafkaErrorCode.INVALID_REQUEST)
    return changed


def altered_list(key: Key, value: Value, operation: Operation, text: str) -> str:
    """Return a list with members appended or removed; raises ConfigError if the key is no list."""
    if key.type is not Type.LIST:
        raise ConfigError(key.name, f"Can't {operation.name} to key {key.name} because its type is not LIST.")
    members = list(value) if isinstance(value, tuple) else []
    named = [member.strip() for member in text.split(",") if member.strip()]
    if operation is Operation.SUBTRACT:
        return ",".join(member for member in members if member not in named)
    return ",".join(dict.fromkeys((*members, *named)))


def known(keys: Mapping[str, Key], name: str, kind: str) -> Key:
    """Return the row of a name; raises ConfigError with the most similar name."""
    key = keys.get(name)
    if key is None:
        raise ConfigError(name, f"Unknown {kind} config name: {name}{did_you_mean(name, keys)}")
    return key
