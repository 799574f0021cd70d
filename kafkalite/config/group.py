"""Defines the configs of single groups (resource type GROUP of DescribeConfigs and IncrementalAlterConfigs).

A group may have configs before it exists, and they remain when it is deleted. Source: GroupConfig.java,
GroupConfigManager.java.
"""

from collections.abc import Collection, Mapping

from kafkalite.config.definitions import did_you_mean
from kafkalite.config.keys import ConfigError, Key, Synonym, Type, Value, valid_texts

KEYS = (
    Key("consumer.assignment.interval.ms", Type.INT, 1000,
        "Minimum time between two assignments of a consumer group, in ms.",
        low=0, synonyms=(Synonym("group.consumer.assignment.interval.ms"),)),
    Key("consumer.heartbeat.interval.ms", Type.INT, 5000,
        "How often members of a consumer group send heartbeats, in ms.",
        low=1, synonyms=(Synonym("group.consumer.heartbeat.interval.ms"),)),
    Key("consumer.session.timeout.ms", Type.INT, 45_000,
        "Time without a heartbeat after which a member of a consumer group is removed, in ms.",
        low=1, synonyms=(Synonym("group.consumer.session.timeout.ms"),)),
)  # fmt: skip
GROUP_CONFIG_KEYS: Mapping[str, Key] = {key.name: key for key in KEYS}
TIMES = frozenset(("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"))

LIMITS = {
    "consumer.assignment.interval.ms": (
        "group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms",
    ),
    "consumer.heartbeat.interval.ms": (
        "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.session.timeout.ms": (
        "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms",
    ),
}  # fmt: skip


def group_values(broker_values: Mapping[str, Value], texts: Mapping[str, str]) -> dict[str, int]:
    """Return the value of every group config for a group with these stored texts. It raises nothing.

    Arguments:
        broker_values: value of every key of the broker.
        texts: set on the group.

    An invalid text does not count. A value outside the broker's current limits is moved to the nearest limit.
    """
    valid, _problems = valid_texts(texts, parse_group_value)
    found: dict[str, int] = {}
    for name, key in GROUP_CONFIG_KEYS.items():
        value = key.parse(valid[name]) if name in valid else broker_values[key.synonyms[0].name]
        assert isinstance(value, int)
        found[name] = value
        if name in valid and name in LIMITS:
            low, high = limits(broker_values, name)
            found[name] = min(max(value, low), high)
    return found


def parse_group_value(name: str, text: str | None) -> int | None:
    """Read a group config; raises ConfigError for an unknown key or a wrong value. None stays None."""
    key = GROUP_CONFIG_KEYS.get(name)
    if key is None:
        raise ConfigError(name, f"Unknown group config name: {name}{did_you_mean(name, GROUP_CONFIG_KEYS)}")
    value = None if text is None else key.parse(text)
    assert value is None or isinstance(value, int)
    return value


def check_group_configs(
    broker_values: Mapping[str, Value], texts: Mapping[str, str | None], changed: Collection[str] | None = None
) -> dict[str, str]:
    """Return the texts to store for a group with exactly these configs.

    Arguments:
        broker_values: value of every key of the broker.
        texts: by key.
        changed: the keys that are checked; None = all.
    Raises ConfigError for an invalid one.
    """
    for name in texts if changed is None else texts.keys() & changed:
        value = parse_group_value(name, texts[name])
        if name in LIMITS and value is not None:
            low, high = limits(broker_values, name)
            if not low <= value <= high:
                raise ConfigError(name, f"{name} is {value}, the broker allows {low} to {high}")
    left = {name: text for name, text in texts.items() if text is not None}
    if changed is None or not TIMES.isdisjoint(changed):
        check_times(group_values(broker_values, left), "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    return left


def check_times(values: Mapping[str, Value], session: str, heartbeat: str) -> None:
    """Raise ConfigError if a session would expire before the next heartbeat is due."""
    longer, shorter = values[session], values[heartbeat]
    assert isinstance(longer, int) and isinstance(shorter, int)
    if shorter >= longer:
        raise ConfigError(heartbeat, f"{heartbeat} ({shorter}) must be below {session} ({longer})")


def limits(broker_values: Mapping[str, Value], name: str) -> tuple[int, int]:
    """Return the minimum and maximum that the broker allows."""
    low, high = (broker_values[each] for each in LIMITS[name])
    assert isinstance(low, int) and isinstance(high, int)
    return low, high
