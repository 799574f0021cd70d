"""Builds the principals of connections by user-defined functions (KafkaPrincipalBuilder.java of Apache Kafka 4.3).

1. A builder is called once for each authentication, before the first request that needs a principal.
2. A connection whose builder fails, or returns no principal, gets none: a login fails, another connection is closed.
3. A renewed session keeps its principal: a builder that returns another one ends the connection.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkalite._speedups.net.framing import Connection
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.extensions.entry_points import PRINCIPAL_BUILDERS, entry_points_of
from kafkalite.model import ANONYMOUS, Principal
from kafkalite.rate_limited_log import site_of


class AuthenticationContext(NamedTuple):
    """What a principal builder knows of a connection (AuthenticationContext.java).

    Attributes:
        principal: of the default builder: the user of the login, the name of the certificate by
            `ssl.principal.mapping.rules`, or `User:ANONYMOUS`.
        listener: its name in capitals.
        security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        host: address of the client.
        mechanism: of the login; None without SASL.
        certificate: of the client, DER; None: it has presented none.
    """

    principal: Principal
    listener: str
    security_protocol: str
    host: str
    mechanism: str | None = None
    certificate: bytes | None = None


PrincipalBuilder = Callable[[AuthenticationContext], Principal]


class PrincipalError(Exception):
    """A connection has no principal; the text is for the log."""


class Principals:
    """Gives the connections of a listener their principals.

    Arguments:
        builder: the function of a package; it runs on the event loop.
        name: of its entry point, for errors.
        security_protocol: of the listener.
    """

    def __init__(self, builder: PrincipalBuilder, name: str, security_protocol: str) -> None:
        self._builder = builder
        self._name = name
        self._security_protocol = security_protocol

    def build(self, connection: Connection, principal: Principal, mechanism: str | None = None) -> Principal:
        """Return the principal of a connection. Raises PrincipalError.

        Arguments:
            connection: authenticated.
            principal: of the default builder.
            mechanism: of SASL; None without it.
        """
        host, listener = connection.peer_host, connection.listener
        context = AuthenticationContext(
            principal, listener, self._security_protocol, host, mechanism, certificate_of(connection)
        )
        try:
            built: object = self._builder(context)
        except Exception as error:  # whatever the package raises; its text may have secrets
            raise PrincipalError(f"the principal builder {self._name} has raised {site_of(error)}") from error
        if not isinstance(built, Principal) or not built.type or not built.name or ":" in built.type:
            raise PrincipalError(f"the principal builder {self._name} has returned no Principal with type and name")
        return built

    def identify(self, connection: Connection) -> str | None:
        """Set the principal of a connection without SASL; returns why it has none."""
        try:
            connection.principal = self.build(connection, connection.principal or ANONYMOUS)
        except PrincipalError as error:
            return str(error)
        return None


def certificate_of(connection: Connection) -> bytes | None:
    """Return the certificate of a client, DER; None: the connection has no TLS, or the client has presented none."""
    transport: Any = getattr(connection, "transport", None)
    ssl_object = None if transport is None else transport.get_extra_info("ssl_object")
    return None if ssl_object is None else ssl_object.getpeercert(True)


def principals_of(config: BrokerConfig) -> dict[str, Principals]:
    """Create the principal builders of the listeners that have one, by listener. Raises ValueError."""
    return dict(_principals(config, config.principal_builders()))


def _principals(config: BrokerConfig, names: Mapping[str, str]) -> Iterable[tuple[str, Principals]]:
    builders = {name: _created(name, config.static) for name in dict.fromkeys(names.values())}
    for endpoint in config.listeners:
        name = names.get(endpoint.listener)
        if name is not None:
            yield endpoint.listener, Principals(builders[name], name, endpoint.security_protocol)


def _created(name: str, texts: Mapping[str, str]) -> PrincipalBuilder:
    """Create the builder of an entry point. Raises ValueError."""
    try:
        created: Any = entry_points_of(PRINCIPAL_BUILDERS)[name].load()(dict(texts))
    except Exception as error:  # whatever the package raises
        raise ValueError(f"{PRINCIPAL_BUILDERS}: {name} cannot be created: {error!r}") from error
    if not callable(created):
        raise ValueError(f"{PRINCIPAL_BUILDERS}: {name}: {created!r} cannot be called")
    builder: PrincipalBuilder = created
    return builder
