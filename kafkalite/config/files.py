"""Reads static configuration: a file, the environment, the command line.

Precedence: `--set key=value`, the environment (`KAFKALITE_LOG_RETENTION_MS` is `log.retention.ms`), the file
(`server.properties` as Java reads it, or TOML with tables or dotted keys), Kafka's default. Each value has its origin,
which the error of a wrong value names. References in values of the file are resolved (`sources.references`).
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.definitions import BROKER_KEYS, LISTENER_PREFIX
from kafkalite.config.keys import PROVIDERS, ConfigError
from kafkalite.config.table_security import REFUSED_PREFIXES

ENVIRONMENT_PREFIX = "KAFKALITE_"
COMMAND_VARIABLES = ("KAFKALITE_CLIENT_CONFIG",)  # of the commands of clients
SHOWN, SHOWN_CHARS = 3, 40  # keys of a file of another kind


@dataclass(frozen=True, slots=True)
class StaticConfig:
    """Texts by key, and the origin of each."""

    texts: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)

    def broker_config(self) -> BrokerConfig:
        """Return the snapshot; raises ConfigError with the key, the allowed values and the origin."""
        try:
            return BrokerConfig(dict(self.texts), origins=dict(self.origins))
        except ConfigError as error:
            origin = self.origins.get(error.key)
            raise ConfigError(error.key, f"{error} (in {origin})" if origin else str(error), error.code) from error


def load(
    file: str | None = None, environment: Mapping[str, str] | None = None, settings: Iterable[str] = ()
) -> StaticConfig:
    """Read and merge all static configuration.

    Arguments:
        file: a path; TOML if it ends with `.toml`, else properties.
        environment: for example `os.environ`; variables of other programs are ignored.
        settings: `key=value` of the command line, the last one wins.
    Raises ConfigError for invalid input.
    """
    texts: dict[str, str] = {}
    origins: dict[str, str] = {}
    sources = [
        *([(file, read_file(file, environment))] if file is not None else []),
        *((name, {key: text}) for name, key, text in from_environment(environment or {})),
        ("--set", dict(map(split_setting, settings))),
    ]
    for origin, found in sources:
        texts.update(found)
        origins.update(dict.fromkeys(found, origin))
    return StaticConfig(texts, origins)


def read_file(path: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the texts of a configuration file, with its references resolved; raises ConfigError.

    Arguments:
        path: TOML if it ends with `.toml`, else properties.
        environment: for references `${env:NAME}`; None = that of this process.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError("", f"{path}: {error.strerror}") from error
    if b"\0" in data:
        raise ConfigError("", f"{path}: not a configuration file: it contains a NUL byte")
    if path.endswith(".toml"):
        texts = parse_toml(path, data)
    else:
        from kafkalite.config.sources.properties import parse_properties  # a start without such a file needs it not

        texts = parse_properties(path, data)
    if texts and not any(map(is_known, texts)):
        raise ConfigError("", f"{path}: {none_known(list(texts))}")
    if PROVIDERS not in texts:
        return texts
    from kafkalite.config.sources.references import resolve_references  # most files have none

    return resolve_references(texts, os.environ if environment is None else environment)


def none_known(names: list[str]) -> str:
    """Return the error text of a file that has only these keys."""
    shown = ", ".join(map(shorten_key, names[:SHOWN]))
    if len(names) == 1:
        return f"its only key, {shown}, is no setting of a broker"
    return f"no setting of a broker among its {len(names)} keys: {shown}{', ...' if len(names) > SHOWN else ''}"


def is_known(name: str) -> bool:
    """Return whether a key is known here, refused keys included."""
    return name in BROKER_KEYS or name.startswith((*REFUSED_PREFIXES, LISTENER_PREFIX))


def shorten_key(name: str) -> str:
    """Return a key as a message shows it."""
    return repr(name[:SHOWN_CHARS]) if len(name) > SHOWN_CHARS or not name.isprintable() else name


def from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield (variable, key, text) of the variables that are configuration.

    A name of one word counts only if it is a key: others belong to the developer's tools (KAFKALITE_DEBUG).
    """
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in COMMAND_VARIABLES:
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
            if "." in key or key in BROKER_KEYS:
                yield name, key, environment[name]


def split_setting(setting: str) -> tuple[str, str]:
    """Split `key=value` of the command line; raises ConfigError."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError("", f"--set {setting}: write it as key=value")
    return key.strip(), text.strip()


# TOML.


def parse_toml(path: str, data: bytes) -> dict[str, str]:
    """Return Kafka's names for tables and dotted keys; lists become comma-separated. Raises ConfigError."""
    import tomllib  # most brokers have no such file

    try:
        tables = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError("", f"{path}: not TOML: {error}") from error
    return dict(flatten(path, "", tables))


def flatten(path: str, prefix: str, table: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield each value with its dotted name; raises ConfigError."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from flatten(path, f"{key}.", value)
        elif isinstance(value, list):
            yield key, ",".join(toml_text(path, key, member) for member in value)
        else:
            yield key, toml_text(path, key, value)


def toml_text(path: str, key: str, value: object) -> str:
    """Return a plain TOML value as text; raises ConfigError."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(key, f"{path}: {key}: a value of type {type(value).__name__} is not supported")
