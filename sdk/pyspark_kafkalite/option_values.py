"""Parses the texts of options: numbers, flags, sizes, times and JSON. Each error names its option.

Pure.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from kafkalite.model import TopicPartition, shown_address
from pyspark_kafkalite.errors import OptionError

LONG_MAX = 2**63 - 1
UNITS_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
UNITS_BYTES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
SECRET = re.compile(r"password|jaas|secret|token|auth|credential|access.?key", re.IGNORECASE)
HIDDEN = "***"
NUMBER_AND_UNIT = re.compile(r"\s*(\d+)\s*([a-zA-Z]*)\s*")


class ShownOptions(dict[str, Any]):
    """Options by name whose text has no secret: reprs of what contains them are part of logs and errors."""

    def __repr__(self) -> str:
        return repr({name: HIDDEN if is_secret(name) else _shown(value) for name, value in self.items()})

    __str__ = __repr__


def _shown(value: Any) -> Any:
    return shown_address(value) if isinstance(value, str) else value


def is_secret(name: str) -> bool:
    """Whether the value of an option, with any of its names, must not be part of a text."""
    return SECRET.search(name) is not None


class Values:
    """The options of one source or sink; names are case-insensitive, as in Spark.

    Arguments:
        options: as Spark passes them.
        names: the names that exist, as they are documented; prefixes end with a dot.
    """

    def __init__(self, options: Mapping[str, str], names: tuple[str, ...]) -> None:
        self._given = {name.lower(): str(value) for name, value in options.items() if value is not None}
        known = {name.lower() for name in names}
        prefixes = tuple(name for name in known if name.endswith("."))
        for name in self._given:
            if name not in known and not name.startswith(prefixes):
                raise OptionError(name, f"it does not exist{_similar(name, names)}")

    def text(self, name: str) -> str | None:
        """Return the text of an option, None = it is not given."""
        value = self._given.get(name.lower())
        return None if value is None else value.strip()

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the options with a prefix, without it."""
        return {name.removeprefix(prefix): each for name, each in self._given.items() if name.startswith(prefix)}

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false. Raises OptionError."""
        value = self.text(name)
        return default if value is None else parse_flag(name, value)

    def integer(self, name: str, default: int | None, *, least: int = 1) -> int | None:
        """Return a whole number of at least `least`. Raises OptionError."""
        value = self.text(name)
        return default if value is None else parse_integer(name, value, least=least)

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        """Return one of some words, in lower case. Raises OptionError."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in allowed:
            raise OptionError(name, f"{value!r}, expected {' or '.join(allowed)}")
        return value.lower()

    def size(self, name: str, default: int | None) -> int | None:
        """Return a size in bytes; the text may have a unit (`64m`). Raises OptionError."""
        value = self.text(name)
        if value is None:
            return default
        match = NUMBER_AND_UNIT.fullmatch(value)
        unit = None if match is None else UNITS_BYTES.get(match[2].lower())
        if match is None or unit is None or not 0 < int(match[1]) * unit <= LONG_MAX:
            raise OptionError(name, f"{value!r}, expected a number of bytes above 0, such as 67108864 or 64m")
        return int(match[1]) * unit

    def milliseconds(self, name: str, default: int) -> int:
        """Return a time in ms; the text may have a unit (`15m`), a bare number is ms. Raises OptionError."""
        value = self.text(name)
        if value is None:
            return default
        match = NUMBER_AND_UNIT.fullmatch(value)
        unit = None if match is None else UNITS_MS.get(match[2].lower() or "ms")
        if match is None or unit is None:
            raise OptionError(name, f"{value!r}, expected a time such as 900000, 30s or 15m")
        return int(int(match[1]) * unit)


def _similar(name: str, names: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    by_lower = {each.lower(): each for each in names}
    found = get_close_matches(name.lower(), by_lower, 1)
    if found:
        return f"; did you mean {by_lower[found[0]]}?"
    return f", expected some of {', '.join(sorted(names, key=str.lower))}"


def parse_flag(name: str, value: str) -> bool:
    """Return true or false. Raises OptionError that names the option."""
    if value.lower() not in ("true", "false"):
        raise OptionError(name, f"{value!r}, expected true or false")
    return value.lower() == "true"


def parse_integer(name: str, value: str, *, least: int = 0) -> int:
    """Return a whole number from `least` on. Raises OptionError that names the option."""
    if not re.fullmatch(r"[+-]?\d+", value) or not least <= int(value) <= LONG_MAX:
        raise OptionError(name, f"{value!r}, expected a whole number of at least {least}")
    return int(value)


def parse_json(name: str, value: str, example: str) -> dict[str, Any]:
    """Return a JSON object. Raises OptionError that names the option."""
    try:
        found = json.loads(value)
    except ValueError as error:
        raise OptionError(name, f"{value!r} is not JSON ({error}), expected such as {example}") from None
    if not isinstance(found, dict) or not found:
        raise OptionError(name, f"{value!r}, expected such as {example}")
    return found


def parse_partition_numbers(name: str, value: str, example: str, *, least: int) -> dict[TopicPartition, int]:
    """Return a number for each partition, from `{"topic": {"0": 23}}`. Raises OptionError that names the option."""
    found = {}
    for topic, partitions in parse_json(name, value, example).items():
        if not isinstance(partitions, dict):
            raise OptionError(name, f"topic {topic} has {partitions!r}, expected such as {example}")
        for partition, number in partitions.items():
            if not partition.isascii() or not partition.isdecimal():
                raise OptionError(name, f"partition {partition!r} of topic {topic}, expected a number from 0 on")
            if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= LONG_MAX:
                raise OptionError(name, f"{number!r} for {topic}-{partition}, expected a whole number from {least} on")
            found[TopicPartition(topic, int(partition))] = number
    return found


def parse_assign(name: str, value: str) -> tuple[TopicPartition, ...]:
    """Return partitions, sorted, from `{"topic": [0, 1]}`. Raises OptionError that names the option."""
    example = '{"orders": [0, 1]}'
    found = set()
    for topic, partitions in parse_json(name, value, example).items():
        if not isinstance(partitions, list) or not partitions:
            raise OptionError(name, f"topic {topic} has {partitions!r}, expected such as {example}")
        for partition in partitions:
            if not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
                raise OptionError(name, f"partition {partition!r} of topic {topic}, expected a number from 0 on")
            found.add(TopicPartition(topic, partition))
    return tuple(sorted(found))
