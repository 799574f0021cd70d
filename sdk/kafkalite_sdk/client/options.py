"""The keyword arguments for connections and metadata, which `Admin`, `rpc.Connection` and consumers have in common.

Pure. Times of arguments are in ms, times of the parsed settings in seconds.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from kafkalite_sdk.client.arguments import reject_unknown, seconds_of, text
from kafkalite_sdk.client.security import SecurityOptions, parse_security
from kafkalite_sdk.client.settings import ClientSettings, parse_servers


class ClientOptions(SecurityOptions, total=False):
    """The keyword arguments of `Admin` and `rpc.Connection`, all optional, with those of `SecurityOptions`.

    The names are those of Java, the times in ms. The other clients have most of them, too.

    Attributes:
        client_id: the name of the client in logs and quotas of the broker (default "kafkalite").
        request_timeout_ms: deadline of a request (30,000).
        connect_timeout_ms: deadline for connecting to a broker (10,000).
        default_api_timeout_ms: deadline of every method that waits, unless it has a timeout of its own (60,000).
        metadata_max_age_ms: metadata is requested again after this time (300,000).
        retry_backoff_ms, retry_backoff_max_ms: pause before a retry, doubled with each failure (100, 1,000).
        reconnect_backoff_ms, reconnect_backoff_max_ms: the same for connections (50, 1,000).
        connections_max_idle_ms: connections without requests are closed after this time (540,000).
    """

    client_id: str
    request_timeout_ms: float
    connect_timeout_ms: float
    default_api_timeout_ms: float
    metadata_max_age_ms: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    reconnect_backoff_ms: float
    reconnect_backoff_max_ms: float
    connections_max_idle_ms: float


AdminOptions = ClientOptions
"""Those of `Admin` and `rpc.Connection`, under the name that a program uses."""

TIMES = tuple(name for name in ClientOptions.__annotations__ if name.endswith("_ms"))


def client_settings(name: str, servers: str | Iterable[str], options: ClientOptions) -> ClientSettings:
    """Check the arguments of a client.

    Arguments:
        name: of the class, in error texts.
        servers: "host:port,host:port", a list of addresses, or "zookeeper://host:port/chroot".
        options: the keyword arguments.

    Raises:
        TypeError: an argument does not exist. ValueError: a value is not valid.
    """
    reject_unknown(name, options, ClientOptions.__annotations__)
    return parse_client(servers, cast(Mapping[str, Any], options))


def parse_client(servers: str | Iterable[str], given: Mapping[str, Any]) -> ClientSettings:
    """Return the settings of a client; other arguments than those of `ClientOptions` are ignored.

    Raises:
        TypeError, ValueError: a value is not valid.
    """
    client_id, times = text("client_id", given.get("client_id", "kafkalite")), seconds_of(TIMES, given)
    addresses, source = parse_servers(servers)
    return ClientSettings(addresses, client_id, security=parse_security(given), source=source, **times)
