"""Defines what a configuration key is: its type, its limits, its support here, and how its text is read and written.

Sources: Kafka's ConfigDef.java (types, texts, limits) and DescribeConfigsResponse.java (numbers of the types).
"""

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kafkalite.errors import KafkaErrorCode

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
PROVIDERS = "config.providers"  # in a file: the names in references such as ${file:PATH:KEY}


class Type(enum.IntEnum):
    """Types of values, with DescribeConfigs' numbers (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Support(enum.Enum):
    """How this broker supports a key."""

    HONOURED = "honoured as Kafka means it"
    WITHOUT_EFFECT = "accepted, without effect here"
    REFUSED = "refused when it differs from its default, because safety hangs on it"


class Update(enum.Enum):
    """How a broker's key may change at run time (Kafka's `Dynamic Update Mode`)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigError(ValueError):
    """A configuration that cannot be used.

    Arguments:
        key: the wrong key, "" if it is no key in particular.
        message: names the wrong value and the allowed values.
        code: the Kafka error code of a response; INVALID_CONFIG unless the request itself is wrong.
    """

    def __init__(self, key: str, message: str, code: int = KafkaErrorCode.INVALID_CONFIG) -> None:
        super().__init__(message)
        self.key = key
        self.code = int(code)


def check_directory(name: str, option: str) -> None:
    """Check the name of the one directory that `option` takes, which becomes the value of `log.dirs`.

    Raises:
        ConfigError: it has a comma. `log.dirs` is a list, so a part of the name would be a second directory.
    """
    if "," in name:
        message = f"{option} {name}: a comma separates directories; give one, or several by log.dirs"
        raise ConfigError("log.dirs", message)


class Synonym(NamedTuple):
    """A broker's key that is the default of a topic's key: value of the broker's key times `factor`."""

    name: str
    factor: int = 1


class Key(NamedTuple):
    """One row of a table of keys. A tuple, because hundreds are created at every start.

    Arguments:
        name: Kafka's name.
        type: of the value.
        default: the value (not the text) if the key is not set; None = unset.
        doc: one line for DescribeConfigs and the documentation.
        low, high: smallest and largest number allowed.
        allowed: the texts allowed, of a STRING or of the members of a LIST.
        any_case: of a STRING: case is ignored, and the value is in lower case.
        support: how this broker supports the key.
        update: whether it may change at run time.
        synonyms: of a topic's key: the broker's keys that are its defaults, the strongest first.
    """

    name: str
    type: Type
    default: Value
    doc: str
    low: float = -math.inf
    high: float = math.inf
    allowed: tuple[str, ...] = ()
    any_case: bool = False
    support: Support = Support.HONOURED
    update: Update = Update.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()

    def parse(self, text: str) -> Value:
        """Read a value; raises ConfigError with the key and the allowed values."""
        value = self._read(text.strip())
        if value is None or not self._in_limits(value):
            shown = text if text.isprintable() else repr(text)
            # Kafka's words, which tools look for.
            wrong = f"Not a number of type {self.type.name}; " if value is None and self.type in NUMBERS else ""
            raise ConfigError(self.name, f"Invalid value {shown} for configuration {self.name}: {wrong}{self.allows()}")
        return value

    def allows(self) -> str:
        """Describe the allowed values."""
        if self.allowed:
            several = "a comma-separated list of " if self.type is Type.LIST else ""
            return f"allowed is {several}{', '.join(self.allowed)}"
        what = WORDS[self.type]
        low = self.low if math.isfinite(self.low) else LIMITS.get(self.type, (None, None))[0]
        high = self.high if math.isfinite(self.high) else LIMITS.get(self.type, (None, None))[1]
        if low is None or high is None:
            bounds = "" if low is None else f" of at least {low:g}"
        else:
            bounds = f" between {low} and {high}"
        return f"allowed is {what}{bounds}"

    def text(self, value: Value) -> str | None:
        """Write a value as Kafka does; None stays None."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def shown(self, value: str | None, text: str) -> str | None:
        """Return what a description shows for a stored text: the value in force, or the text if it is not valid."""
        try:
            self.parse(text)
        except ConfigError:
            return text
        return value

    @property
    def sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.type is Type.PASSWORD

    def _read(self, text: str) -> Value:
        if self.type is Type.BOOLEAN:
            return BOOLEANS.get(text.lower())
        if self.type in LIMITS:
            return read_whole(text)
        if self.type is Type.DOUBLE:
            return read_double(text)
        if self.type is Type.LIST:
            return tuple(member.strip() for member in text.split(",")) if text else ()
        return text.lower() if self.any_case else text

    def _in_limits(self, value: Value) -> bool:
        if isinstance(value, tuple):
            return len(set(value)) == len(value) and all(not self.allowed or member in self.allowed for member in value)
        if isinstance(value, str):
            return not self.allowed or value in self.allowed
        if isinstance(value, bool) or value is None:
            return True
        low, high = LIMITS.get(self.type, (-math.inf, math.inf))
        return max(low, self.low) <= value <= min(high, self.high)


# A setting as a Python program gives it: its text, or a value that Kafka's text is made of.
SettingValue: TypeAlias = str | bool | int | float | Sequence[str]


def setting_texts(settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """Return the texts of configs from a Python program: 3 is "3", True is "true", a list is comma-separated.

    Raises ConfigError for a value of any other type.
    """
    return {name: setting_text(name, value) for name, value in settings.items()}


def setting_text(name: str, value: SettingValue) -> str:
    """Return one config as text; raises ConfigError."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple) and all(isinstance(member, str) for member in value):
        return ",".join(value)
    raise ConfigError(name, f"{name}: expected a string, a number, a boolean or a list of strings, got {value!r}")


BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}
LIMITS: Mapping[Type, tuple[int, int]] = {
    Type.SHORT: (-(2**15), 2**15 - 1),
    Type.INT: (-(2**31), INT_MAX),
    Type.LONG: (-(2**63), LONG_MAX),
}
NUMBERS = (*LIMITS, Type.DOUBLE)
WORDS: Mapping[Type, str] = {
    Type.UNKNOWN: "a text",
    Type.BOOLEAN: "true or false",
    Type.STRING: "a text",
    Type.SHORT: "a whole number",
    Type.INT: "a whole number",
    Type.LONG: "a whole number",
    Type.DOUBLE: "a number",
    Type.LIST: "a comma-separated list without repetitions",
    Type.CLASS: "the name of a class",
    Type.PASSWORD: "a text",
}


def read_whole(text: str) -> int | None:
    """Read a whole number in ASCII digits, at most 20 characters; None for any other text."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(text) <= 20 else None


def read_double(text: str) -> float | None:
    """Read a finite number; None for any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def valid_texts(texts: Mapping[str, str], parse: Callable[[str, str], object]) -> tuple[dict[str, str], list[str]]:
    """Return the stored texts that are valid one by one, and the errors of the others.

    Arguments:
        texts: by key.
        parse: reads the text of a key; raises ConfigError.
    """
    valid, errors = {}, []
    for name, text in texts.items():
        try:
            parse(name, text)
        except ConfigError as error:
            errors.append(str(error))
        else:
            valid[name] = text
    return valid, errors
