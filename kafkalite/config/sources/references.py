"""Resolves references in the values of the configuration file: `${file:PATH:KEY}`, `${dir:PATH:NAME}`, `${env:NAME}`.

They are Kafka's: `config.providers` lists names, and `config.providers.NAME.class` says what a name reads. The keys are
used here, and are no settings of the broker.

1. Only the file is resolved, once, when it is read. Requests, stored configs, the environment and `--set` cannot make
   the broker read a file (CVE-2024-31141); what a reference stands for is not resolved again.
2. Files must be below `config.providers.NAME.param.allowed.paths`, symbolic links resolved (KAFKA-20700): a link in
   such a directory reads nothing elsewhere. In Kafka all paths are allowed without this key.
3. A reference that cannot be resolved is an error, which names the reference and no value. In Kafka it stays text, and
   that would be used as the password. One with another provider stays text, as in Kafka.

Source: ConfigTransformer.java, FileConfigProvider.java, DirectoryConfigProvider.java, EnvVarConfigProvider.java and
AllowedPaths.java of Apache Kafka 4.3.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import partial

from kafkalite.config.keys import PROVIDERS, ConfigError
from kafkalite.config.sources.properties import parse_properties

PACKAGE = "org.apache.kafka.common.config.provider"
REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")  # ConfigTransformer.DEFAULT_PATTERN
BYTES_MAX = 1 << 20  # of a file

Provider = Callable[[str, str], str]
"""Returns what a path and a key stand for. Raises ValueError with the reason, OSError."""


def resolve_references(texts: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of a file without references and the keys of their providers.

    Arguments:
        texts: by key.
        environment: for `${env:NAME}`.

    Raises ConfigError: a provider is not supported, or a reference cannot be resolved.
    """
    names = [name for each in texts.get(PROVIDERS, "").split(",") if (name := each.strip())]
    if not names:
        return dict(texts)
    providers = {name: _provider(name, texts, environment) for name in names}
    return {
        key: REFERENCE.sub(partial(_value, key, providers), text)
        for key, text in texts.items()
        if key != PROVIDERS and not key.startswith(f"{PROVIDERS}.")
    }


def _value(key: str, providers: Mapping[str, Provider], found: re.Match[str]) -> str:
    name, path, wanted = found[1], found[2] or "", found[3]
    if name not in providers:
        return found[0]
    try:
        return providers[name](path, wanted)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(key, f"{key}: {found[0]}: {reason}") from None


def _provider(name: str, texts: Mapping[str, str], environment: Mapping[str, str]) -> Provider:
    """Return what reads the references of a name. Raises ConfigError: its class is another one, or lacks paths."""
    prefix = f"{PROVIDERS}.{name}."
    used = texts.get(f"{prefix}class", "").strip()
    if used == f"{PACKAGE}.EnvVarConfigProvider":
        pattern = texts.get(f"{prefix}param.allowlist.pattern", ".*")
        return partial(_of_environment, environment, _pattern(f"{prefix}param.allowlist.pattern", pattern))
    readers = {f"{PACKAGE}.FileConfigProvider": _of_file, f"{PACKAGE}.DirectoryConfigProvider": _of_directory}
    if used not in readers:
        known = ", ".join([*readers, f"{PACKAGE}.EnvVarConfigProvider"])
        raise ConfigError(PROVIDERS, f"{prefix}class: {used!r} is not supported; expected one of {known}")
    key = f"{prefix}param.allowed.paths"
    allowed = [path for each in texts.get(key, "").split(",") if (path := each.strip())]
    if not allowed or not all(map(os.path.isabs, allowed)):
        raise ConfigError(PROVIDERS, f"{key} must have the absolute paths below which {name} may read, comma-separated")
    return partial(readers[used], [os.path.realpath(each) for each in allowed])


def _pattern(key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(PROVIDERS, f"{key}: {error}") from error


def _of_environment(environment: Mapping[str, str], allowed: re.Pattern[str], path: str, key: str) -> str:
    if path:
        raise ValueError("a variable of the environment has no path")
    if key not in environment or allowed.fullmatch(key) is None:
        raise ValueError("there is no such variable, or it is not allowed")
    return environment[key]


def _of_file(allowed: list[str], path: str, key: str) -> str:
    values = parse_properties(path, _read(allowed, path))
    if key not in values:
        raise ValueError("the file has no such key")
    return values[key]


def _of_directory(allowed: list[str], path: str, key: str) -> str:
    if os.sep in key or key in ("", os.curdir, os.pardir):
        raise ValueError("it is no name of a file")
    try:
        return _read(allowed, os.path.join(path, key)).decode()
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8") from None


def _read(allowed: list[str], path: str) -> bytes:
    real = os.path.realpath(path)
    if not os.path.isabs(path) or all(os.path.commonpath((each, real)) != each for each in allowed):
        raise ValueError("the file is not below an allowed path (param.allowed.paths)")
    with open(real, "rb") as file:
        data = file.read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise ValueError(f"the file has more than {BYTES_MAX} bytes")
    return data
