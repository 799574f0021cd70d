"""Translates the options `kafka.*`, which have the names of Java's clients, to the arguments of the SDK's clients.

Pure. An option is translated, has no effect here (SILENT), belongs to Spark (PROTECTED), or is rejected.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.option_values import ShownOptions, Values, parse_flag, parse_integer

PREFIX = "kafka."
PROTECTED = (
    *("key.deserializer", "value.deserializer", "key.serializer", "value.serializer"),
    *("auto.offset.reset", "enable.auto.commit", "interceptor.classes"),
)
SILENT = (
    *("fetch.min.bytes", "fetch.max.bytes", "max.poll.records", "max.poll.interval.ms", "session.timeout.ms"),
    *("heartbeat.interval.ms", "receive.buffer.bytes", "send.buffer.bytes", "auto.commit.interval.ms"),
    *("partition.assignment.strategy", "exclude.internal.topics", "client.dns.lookup", "metric.reporters"),
    *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "enable.metrics.push"),
    *("auto.include.jmx.reporter", "allow.auto.create.topics", "isolation.level", "group.id"),
)
"""They tune what Java's consumer does and the SDK's reader of ranges does not; `isolation.level` and `group.id` are
read elsewhere."""

NUMBERS = (".ms", ".bytes", ".records", ".samples")
"""Ends of the names in SILENT whose values are numbers."""

DEFAULT_CLIENT_ID = "spark-kafkalite"
LOGIN = re.compile(r"\s*([\w.]+)\s+required\s*(.*?);\s*", re.DOTALL)
LOGIN_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))\s*""")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LOGIN_MODULES = ("PlainLoginModule", "ScramLoginModule")


def _text(_: str, value: str) -> str:
    return value


def _number(name: str, value: str) -> int:
    return parse_integer(name, value, least=1)


def _pem(name: str, value: str) -> str:
    if value.upper() != "PEM":
        raise OptionError(name, f"{value!r}, expected PEM: export the store with keytool and openssl")
    return value


def _endpoint(name: str, value: str) -> bool:
    if value.lower() not in ("", "https"):
        raise OptionError(name, f"{value!r}, expected https, or nothing to accept every host name")
    return value != ""


Translations = dict[str, tuple[tuple[str, ...], Callable[[str, str], Any]]]

SHARED: Translations = {
    "client.id": (("client_id",), _text),
    "request.timeout.ms": (("request_timeout_ms",), _number),
    "default.api.timeout.ms": (("default_api_timeout_ms",), _number),
    "metadata.max.age.ms": (("metadata_max_age_ms",), _number),
    "retry.backoff.ms": (("retry_backoff_ms",), _number),
    "retry.backoff.max.ms": (("retry_backoff_max_ms",), _number),
    "connections.max.idle.ms": (("connections_max_idle_ms",), _number),
    "socket.connection.setup.timeout.ms": (("connect_timeout_ms",), _number),
    "security.protocol": (("security_protocol",), _text),
    "ssl.truststore.location": (("ssl_cafile",), _text),
    "ssl.truststore.type": ((), _pem),
    "ssl.keystore.location": (("ssl_certfile", "ssl_keyfile"), _text),  # Java's PEM file has key and certificates
    "ssl.keystore.type": ((), _pem),
    "ssl.key.password": (("ssl_password",), _text),
    "ssl.endpoint.identification.algorithm": (("ssl_check_hostname",), _endpoint),
    "sasl.mechanism": (("sasl_mechanism",), _text),
}
TRANSLATED: Translations = {
    **SHARED,
    "client.rack": (("client_rack",), _text),
    "check.crcs": (("check_crcs",), parse_flag),
    "fetch.max.wait.ms": (("fetch_max_wait_ms",), _number),
    "max.partition.fetch.bytes": (("max_partition_fetch_bytes",), _number),
    "reconnect.backoff.ms": (("reconnect_backoff_ms",), _number),
    "reconnect.backoff.max.ms": (("reconnect_backoff_max_ms",), _number),
}
RACK_VARIABLE = "rack_variable"
"""Name of the environment variable with the rack of a process, in the arguments; `reader_options` reads it."""

READER_ONLY = (RACK_VARIABLE, "client_rack", "check_crcs", "fetch_max_wait_ms", "max_partition_fetch_bytes")
"""Arguments of the reader of ranges that the administration does not have."""


def client_options(values: Values) -> dict[str, Any]:
    """Return the arguments of the SDK's clients.

    Arguments:
        values: all options.

    Raises:
        OptionError: an option is missing, unknown, protected or not valid.
    """
    group = values.text("kafka.group.id") or values.text("groupIdPrefix")
    found = translate(values, TRANSLATED, SILENT, group or DEFAULT_CLIENT_ID)
    _check(found)
    variable = values.text("rackVariable")
    if variable is not None:
        if "client_rack" in found:
            raise OptionError("rackVariable", "kafka.client.rack is given, too; expected one of them")
        if not VARIABLE.fullmatch(variable):
            raise OptionError("rackVariable", f"it is {variable!r}, expected the name of an environment variable")
        found[RACK_VARIABLE] = variable
    return found


def translate(values: Values, table: Translations, silent: tuple[str, ...], client_id: str) -> dict[str, Any]:
    """Return the options `kafka.*` as arguments of a client of the SDK, with `bootstrap_servers`.

    Arguments:
        values: all options.
        table: Java's names with the arguments that they become.
        silent: names without an effect.
        client_id: the default of `client.id`.

    Raises:
        OptionError: an option is missing, unknown, protected or not valid.
    """
    given = values.with_prefix(PREFIX)
    servers = given.pop("bootstrap.servers", "")
    if not servers.strip():
        raise OptionError(
            "kafka.bootstrap.servers", "it is missing, expected host:port of brokers, separated by commas"
        )
    found = ShownOptions(bootstrap_servers=servers, client_id=client_id)
    for name, value in given.items():
        if name in PROTECTED:
            raise OptionError(PREFIX + name, "it cannot be set: Spark decides it")
        if name == "sasl.jaas.config":
            found.update(_login(PREFIX + name, value))
        elif name in table:
            arguments, parse = table[name]
            found.update(dict.fromkeys(arguments, parse(PREFIX + name, value.strip())))
        elif name not in silent:
            raise OptionError(PREFIX + name, f"it is not supported{_hint(name, (*table, *silent))}")
        elif name.endswith(NUMBERS):
            parse_integer(PREFIX + name, value.strip(), least=-1)
    return found


def admin_options(client: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without those that only the reader of ranges has."""
    return {name: value for name, value in client.items() if name not in READER_ONLY}


def reader_options(client: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments with the rack of this process; without its variable, records are read from leaders.

    Arguments:
        client: of `client_options`.
        environment: of this process.
    """
    found = {name: value for name, value in client.items() if name != RACK_VARIABLE}
    rack = environment.get(client.get(RACK_VARIABLE, ""))
    return {**found, "client_rack": rack} if rack else found


def _hint(name: str, names: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    known = ("bootstrap.servers", "sasl.jaas.config", *names)
    found = get_close_matches(name, known, 1, 0.8)
    if found:
        return f"; did you mean {PREFIX}{found[0]}?"
    return f", expected some of {', '.join(PREFIX + each for each in known)}"


def _login(name: str, value: str) -> dict[str, str]:
    """Return user and password of a login module in the form of JAAS. No error contains them."""
    match = LOGIN.fullmatch(value)
    module = "" if match is None else match[1].rpartition(".")[2]
    if match is None or module not in LOGIN_MODULES:
        reason = f"expected MODULE required username=... password=...; with MODULE {' or '.join(LOGIN_MODULES)}"
        raise OptionError(name, reason)
    found = {
        key: re.sub(r"\\(.)", r"\1", double or single or bare)
        for key, double, single, bare in LOGIN_OPTION.findall(match[2])
    }
    if not {"username", "password"} <= set(found):
        raise OptionError(name, "username or password is missing")
    return {"sasl_username": found["username"], "sasl_password": found["password"]}


def _check(found: dict[str, Any]) -> None:
    """Have the SDK check the values that it alone knows: addresses, protocols, mechanisms, files."""
    from kafkalite_sdk.client.options import ClientOptions, client_settings

    known = {name: value for name, value in found.items() if name in ClientOptions.__annotations__}
    known |= {name: value for name, value in found.items() if name.startswith(("ssl_", "sasl_", "security_"))}
    try:
        client_settings("Connection", found["bootstrap_servers"], known)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        argument = re.match(r"\w+", str(error))
        names = [name for name, (arguments, _) in TRANSLATED.items() if argument and argument[0] in arguments]
        name = names[0] if names else "bootstrap.servers" if argument and argument[0] == "bootstrap_servers" else ""
        raise OptionError(PREFIX + (name or "*"), str(error)) from None
