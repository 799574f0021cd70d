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
SWITCHES = ("ssl_check_hostname", "sasl_tokenauth", "enable_idempotence")
CHOICES = {"acks": ("all", "-1", "0", "1"), "compression_type": ("none", "gzip", "snappy", "lz4", "zstd")}
# The smallest value of a number of a producer.
NUMBERS = {
    "linger_ms": 0,
    "batch_size": 1,
    "delivery_timeout_ms": 1,
    "max_request_size": 1,
    "retry_backoff_ms": 0,
    "max_in_flight": 1,
    "transaction_timeout_ms": 1,
}
PRODUCER = frozenset((*NUMBERS, *CHOICES, "enable_idempotence"))
NUMBER_MAX = 2**31 - 1
PRODUCE = "produce"  # the command with these settings
BOOTSTRAP = "bootstrap_servers"
JAAS = "sasl_jaas_config"
KNOWN = (BOOTSTRAP, *TEXTS, *MILLISECONDS, *SWITCHES, JAAS, *CHOICES, *NUMBERS)
ALIASES = {
    "max_in_flight_requests_per_connection": "max_in_flight",
    "queue_buffering_max_ms": "linger_ms",
    "message_timeout_ms": "delivery_timeout_ms",
    "compression_codec": "compression_type",
    "request_required_acks": "acks",
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
HOW = "-X KEY=VALUE or --client-config sets them"
SETTING = re.compile(rf"\b(?:{'|'.join(name for name in KNOWN if '_' in name)}|sasl_\*)(?![\w.])(?:=(?:True|False)\b)?")
_JAAS_OPTION = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_JAAS_TOKEN = re.compile(r'tokenauth\s*=\s*"?true\b', re.IGNORECASE)


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


def split_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of every client, and those of producers, which other commands ignore in a shared file."""
    common = {name: value for name, value in settings.items() if name not in PRODUCER}
    return common, {name: value for name, value in settings.items() if name in PRODUCER}


def check_command(command: str | None, given: Iterable[str]) -> None:
    """End a command other than `produce` whose command line sets a key of producers."""
    names = {key: next(iter(setting(source, key, value)), "") for source, key, value in pairs_of(given)}
    own = [key for key, name in names.items() if name in PRODUCER]
    if own and command != PRODUCE:
        fail(f"-X: {', '.join(own)} is a setting of `kafkalite {PRODUCE}` only")


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
    if name in NUMBERS:
        if not value.isascii() or not value.isdecimal() or not NUMBERS[name] <= int(value) <= NUMBER_MAX:
            fail(f"{source}: {key} is {value!r}, expected {NUMBERS[name]} to {NUMBER_MAX}")
        return {name: int(value)}
    if name in CHOICES:
        if value.lower() not in CHOICES[name]:
            fail(f"{source}: {key} is {value!r}, expected one of {', '.join(CHOICES[name])}")
        return {name: value.lower()}
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
    known = ", ".join(map(dotted_key, KNOWN))
    hint = f"; did you mean {dotted_key(near[0])}?" if near else f"; known are {known}"
    return Failure(f"{source}: {key} is not a setting of a client{hint}")


def dotted_key(name: str) -> str:
    """Return the name of a setting as users write it."""
    return name.replace("_", ".")


def with_cli_names(text: str) -> str:
    """Return the text of an error with the settings as users of a command write them, and how to set these.

    Arguments:
        text: of the SDK, such as "...; set ssl_cafile to its certificate".
    """
    named = SETTING.sub(lambda match: dotted_setting(match[0]), text)
    return text if named == text else f"{named} ({HOW})"


def dotted_setting(text: str) -> str:
    """Return a setting of the SDK, such as `ssl_check_hostname=False`, as a line of a file."""
    name, _, value = text.partition("=")
    return f"{dotted_key(name)}={value.lower()}" if value else dotted_key(name)


def credentials(source: str, key: str, value: str) -> Mapping[str, Any]:
    """Return username and password of a JAAS configuration of PLAIN or SCRAM."""
    found = {name: re.sub(r"\\(.)", r"\1", text) for name, text in _JAAS_OPTION.findall(value)}
    if found.keys() != {"username", "password"}:
        fail(f'{source}: {key} has no username="..." and password="..."; set sasl.username and sasl.password instead')
    settings: dict[str, Any] = {f"sasl_{name}": text for name, text in found.items()}
    return {**settings, "sasl_tokenauth": True} if _JAAS_TOKEN.search(_JAAS_OPTION.sub("", value)) else settings


def token_of(text: str) -> Any:
    """Return the function that returns a token for OAUTHBEARER."""

    async def token() -> str:
        return text

    return token
