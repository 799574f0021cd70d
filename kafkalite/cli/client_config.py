"""Reads the settings of clients: a file of Java's or librdkafka's clients, and KEY=VALUE of the command line.

A line is KEY=VALUE; a comment begins with # or !. Keys are the names of `kafkalite_sdk` with dots or underscores, and
the names of other clients in ALIASES. A setting of the command line replaces that of the file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kafkalite.cli.failure import Failure, fail

TEXTS = (
    "client_id",
    "security_protocol",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "sasl_mechanism",
    "sasl_username",
    "sasl_password",
    "sasl_token",
)
MILLISECONDS = ("request_timeout_ms", "connect_timeout_ms", "default_api_timeout_ms")
SWITCHES = ("ssl_check_hostname",)
BOOTSTRAP = "bootstrap_servers"
JAAS = "sasl_jaas_config"
KNOWN = (BOOTSTRAP, *TEXTS, *MILLISECONDS, *SWITCHES, JAAS)
ALIASES = {
    "metadata_broker_list": BOOTSTRAP,
    "sasl_mechanisms": "sasl_mechanism",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
    "enable_ssl_certificate_verification": "ssl_check_hostname",
}
HOSTNAME_ALGORITHM = "ssl_endpoint_identification_algorithm"  # empty: host names are not compared
STORES = re.compile(r"ssl_(truststore|keystore)_")
_JAAS_OPTION = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def read_settings(file: str | None, given: Iterable[str]) -> dict[str, Any]:
    """Return settings by their names in the SDK, with `bootstrap_servers`; ends the command if one is not valid.

    Arguments:
        file: path of a file, None = none.
        given: KEY=VALUE of the command line.
    """
    settings: dict[str, Any] = {}
    for source, key, value in (*(() if file is None else lines_of(file)), *pairs_of(given)):
        settings.update(setting(source, key, value))
    return settings


def lines_of(file: str) -> Iterator[tuple[str, str, str]]:
    """Yield source, key and value of each setting in a file."""
    try:
        text = Path(file).read_text("utf-8-sig")
    except UnicodeDecodeError:
        fail(f"{file} is not a client configuration: it is not UTF-8 text")
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            source = f"{file}, line {number}"
            yield (source, *key_and_value(source, stripped))


def pairs_of(given: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield source, key and value of each setting of the command line."""
    for text in given:
        yield ("-X", *key_and_value("-X", text))


def key_and_value(source: str, text: str) -> tuple[str, str]:
    """Split KEY=VALUE. The text of an error does not contain the value, which may be a password."""
    key, separator, value = text.partition("=")
    if not separator:
        fail(f"{source}: {key.strip().split(' ')[0]!r} is not a setting; write KEY=VALUE")
    return key.strip(), value.strip()


def setting(source: str, key: str, value: str) -> Mapping[str, Any]:
    """Return a setting by its name in the SDK."""
    name = key.lower().replace(".", "_").replace("-", "_")
    name = ALIASES.get(name, name)
    if name == HOSTNAME_ALGORITHM:
        return {"ssl_check_hostname": value.lower() not in ("", "none")}
    if name == JAAS:
        return credentials(source, key, value)
    if name in SWITCHES:
        if value.lower() not in ("true", "false"):
            fail(f"{source}: {key} is {value!r}, expected true or false")
        return {name: value.lower() == "true"}
    if name in MILLISECONDS:
        if not value.isascii() or not value.isdecimal() or not int(value):
            fail(f"{source}: {key} is {value!r}, expected a number of milliseconds above 0")
        return {name: int(value)}
    if name == "sasl_token":
        return {name: token_of(value)}
    if name in (BOOTSTRAP, *TEXTS):
        return {name: value}
    if STORES.match(name):
        fail(f"{source}: {key} is a Java key store; export PEM files, and set ssl.cafile, ssl.certfile, ssl.keyfile")
    raise unknown(source, key, name)


def unknown(source: str, key: str, name: str) -> Failure:
    """Return the error for a key that no client has."""
    from difflib import get_close_matches

    near = get_close_matches(name, KNOWN, 1)
    hint = f"; did you mean {near[0].replace('_', '.')}?" if near else f"; known are {', '.join(KNOWN)}"
    return Failure(f"{source}: {key} is not a setting of a client{hint}")


def credentials(source: str, key: str, value: str) -> Mapping[str, Any]:
    """Return username and password of a JAAS configuration of PLAIN or SCRAM."""
    found = {name: re.sub(r"\\(.)", r"\1", text) for name, text in _JAAS_OPTION.findall(value)}
    if found.keys() != {"username", "password"}:
        fail(f'{source}: {key} has no username="..." and password="..."; set sasl.username and sasl.password instead')
    return {f"sasl_{name}": text for name, text in found.items()}


def token_of(text: str) -> Any:
    """Return the function that returns a token for OAUTHBEARER."""

    async def token() -> str:
        return text

    return token
