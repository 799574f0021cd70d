"""Reads the sections of a job file: each key is declared, and an error names section, key and what is allowed.

Pure.
"""

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from kafkalite.model import shown_address
from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.option_values import HIDDEN, ShownOptions, is_secret

_DURATION = re.compile(r"\d+ (millisecond|second|minute|hour|day|week)s?")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def _shown(key: str, value: Any) -> str:
    """A value for errors, without passwords."""
    return HIDDEN if is_secret(key) else shown_address(repr(value))


class Section:
    """One section of a job file.

    Arguments:
        origin: the file, for errors.
        name: of the section.
        fields: its keys and values.
        keys: those that are allowed; None = all.

    Raises:
        JobError: a key is not allowed, or an environment variable is not set.
    """

    def __init__(self, origin: str, name: str, fields: Mapping[str, Any], keys: tuple[str, ...] | None) -> None:
        self._origin = origin
        self._name = name
        for key in fields:
            if keys is not None and key not in keys:
                raise JobError(f"{origin}: [{name}] {key}: it does not exist{_expected(key, keys)}")
        self._fields = {key: self._expanded(key, value) for key, value in fields.items()}

    def error(self, key: str, reason: str) -> JobError:
        """Return an error about a key."""
        return JobError(f"{self._origin}: [{self._name}] {key}: {reason}")

    def has(self, key: str) -> bool:
        """Return whether the key is given."""
        return key in self._fields

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return a text. Raises JobError."""
        value = self._fields.get(key, default)
        if value is not None and not isinstance(value, str):
            raise self.error(key, f"{_shown(key, value)}, expected text in quotes")
        if value is not None and not value.strip():
            raise self.error(key, "it is empty")
        return value

    def required_text(self, key: str, example: str) -> str:
        """Return a text. Raises JobError: it is missing."""
        value = self.text(key)
        if value is None:
            raise self.error(key, f"it is missing, expected such as {example}")
        return value

    def choice(self, key: str, default: str | None, allowed: tuple[str, ...]) -> str:
        """Return one of some words. Raises JobError."""
        value = self.text(key, default)
        if value is None:
            raise self.error(key, f"it is missing, expected {' or '.join(allowed)}")
        if value not in allowed:
            raise self.error(key, f"{value!r}, expected {' or '.join(allowed)}")
        return value

    def integer(self, key: str, default: int, *, least: int, most: int) -> int:
        """Return a whole number. Raises JobError."""
        value = self._fields.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(key, f"{value!r}, expected a whole number from {least} to {most}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false. Raises JobError."""
        value = self._fields.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"{value!r}, expected true or false")
        return value

    def number(self, key: str) -> int | float:
        """Return a number; the key is given. Raises JobError."""
        value = self._fields[key]
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(key, f"{value!r}, expected a number")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts. Raises JobError."""
        value = self._fields.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) and each.strip() for each in value):
            raise self.error(key, "expected a list of texts")
        return tuple(value)

    def duration(self, key: str, default: str | None) -> str:
        """Return a duration of Spark; `default` None = it is required. Raises JobError."""
        value = self.required_text(key, '"1 hour"') if default is None else self.text(key, default)
        if value is None or not _DURATION.fullmatch(value):
            raise self.error(key, f'{value!r}, expected a duration such as "10 minutes"')
        return value

    def named_texts(self, key: str) -> dict[str, str]:
        """Return texts by name. Raises JobError."""
        value = self._fields.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(each, str) and each.strip() for each in value.values()):
            raise self.error(key, f'{value!r}, expected such as {{rows = "count(*)"}}')
        return dict(value)

    def options(self) -> dict[str, str]:
        """Return all keys as options of Spark; `a.b = 1` and `"a.b" = 1` are the same. Raises JobError."""
        found = ShownOptions()
        self._flatten("", self._fields, found)
        return found

    def _flatten(self, prefix: str, fields: Mapping[str, Any], found: dict[str, str]) -> None:
        for key, value in fields.items():
            if isinstance(value, dict):
                self._flatten(f"{prefix}{key}.", value, found)
            elif isinstance(value, bool):
                found[prefix + key] = str(value).lower()
            elif isinstance(value, str | int | float):
                found[prefix + key] = str(value)
            else:
                shown = _shown(prefix + key, value)
                raise self.error(prefix + key, f"{shown}, expected text, a number, true or false")

    def _expanded(self, key: str, value: Any) -> Any:
        """Replace ${NAME} by the environment variable, so that a file contains no password."""
        if isinstance(value, dict):
            return {name: self._expanded(f"{key}.{name}", each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._expanded(key, each) for each in value]
        if not isinstance(value, str):
            return value
        for name in _VARIABLE.findall(value):
            if name not in os.environ:
                raise self.error(key, f"the environment variable {name} is not set")
        return _VARIABLE.sub(lambda found: os.environ[found[1]], value)


def _expected(key: str, keys: tuple[str, ...]) -> str:
    near = get_close_matches(key, keys, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{hint}; allowed are {', '.join(keys)}"
