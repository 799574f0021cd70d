"""The security settings of a client: TLS, and the SASL mechanism with its credentials.

The names are those of kafka-python and aiokafka, without `plain` and `oauth` in the names of credentials, which serve
all mechanisms.
"""

import os
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from kafkalite.net.sasl.steps import ClientMechanism

if TYPE_CHECKING:  # imported with the first client that uses TLS or SASL
    from kafkalite.net.sasl.oauthbearer import GetToken, OAuthBearerClient
    from kafkalite.net.tls import FixedContext, PemFiles, ReloadedContext

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
USES = {"ssl_": ("SSL", "SASL_SSL"), "sasl_": ("SASL_PLAINTEXT", "SASL_SSL")}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PEM_SETTINGS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")


class SecurityOptions(TypedDict, total=False):
    """The keyword arguments of all clients for TLS and SASL.

    Attributes:
        security_protocol: "PLAINTEXT" (default), "SSL" (TLS), "SASL_PLAINTEXT" or "SASL_SSL", as the listener.
        ssl_context: a client context of the `ssl` module, instead of the files.
        ssl_cafile: PEM file with the certificates of trusted issuers. Default: those of the system.
        ssl_certfile, ssl_keyfile: PEM files with the client's certificate and its key, where brokers require one. A
            renewed file is used for the next connection.
        ssl_password: of the key.
        ssl_check_hostname: the broker's certificate must name its host (True).
        sasl_mechanism: "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", or an object with `name` and `begin`
            (`kafkalite_sdk.ClientMechanism`).
        sasl_username, sasl_password: credentials of PLAIN and SCRAM.
        sasl_tokenauth: the credentials of SCRAM are the id of a delegation token and its HMAC in base64 (False).
        sasl_token: async function without arguments that returns a token for OAUTHBEARER: a text, a text and its expiry
            in ms of the epoch, or an `OAuthToken`. It is called for each authentication.
    """

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | os.PathLike[str] | None
    ssl_certfile: str | os.PathLike[str] | None
    ssl_keyfile: str | os.PathLike[str] | None
    ssl_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | ClientMechanism | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_tokenauth: bool
    sasl_token: "GetToken | None"


SECURITY_OPTIONS = tuple(SecurityOptions.__annotations__)


class Security(NamedTuple):
    """How a client connects. Its text contains no secret.

    Attributes:
        tls: returns the context for the next connection; None = plain text.
        sasl: None = no authentication by SASL.
    """

    tls: "FixedContext | ReloadedContext | None" = None
    sasl: ClientMechanism | None = None

    def __repr__(self) -> str:
        mechanism = "" if self.sasl is None else f", {self.sasl.name}"
        protocol = ("SASL_" if self.sasl is not None else "") + ("PLAINTEXT" if self.tls is None else "SSL")
        return f"Security({protocol}{mechanism})"


def parse_security(options: Mapping[str, Any]) -> Security:
    """Check the security settings among keyword arguments; others are ignored. PEM files are loaded.

    Raises:
        ValueError: a value is not valid, missing, or not used with this protocol or mechanism. TypeError: a value has
        another type. No text contains a secret.
    """
    given = {name: options[name] for name in SECURITY_OPTIONS if options.get(name) is not None}
    protocol = given.get("security_protocol", "PLAINTEXT")
    if protocol not in PROTOCOLS:
        raise ValueError(f"security_protocol is {protocol!r}, expected one of {', '.join(PROTOCOLS)}")
    _check_use(given, protocol)
    tls = _tls(given) if protocol.endswith("SSL") else None
    return Security(tls, _mechanism(given) if protocol.startswith("SASL") else None)


def _check_use(given: Mapping[str, Any], protocol: str) -> None:
    for name in given:
        uses = next((uses for prefix, uses in USES.items() if name.startswith(prefix)), PROTOCOLS)
        if protocol not in uses and name != "ssl_check_hostname":
            raise ValueError(
                f"{name} has no effect with security_protocol {protocol}; set security_protocol to {' or '.join(uses)}"
            )


def _tls(given: Mapping[str, Any]) -> "FixedContext | ReloadedContext":
    from kafkalite.net.tls import FixedContext, ReloadedContext

    context = given.get("ssl_context")
    check_hostname = given.get("ssl_check_hostname", True)
    if not isinstance(check_hostname, bool):
        raise TypeError(f"ssl_check_hostname is {check_hostname!r}, expected a bool")
    if context is None:
        return ReloadedContext(_pem_files(given, check_hostname))
    for name in (*PEM_SETTINGS, "ssl_check_hostname"):
        if name in given:
            raise ValueError(f"{name} has no effect with ssl_context; set it in the context")
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(f"ssl_context is a {type(context).__name__}, expected an ssl.SSLContext")
    if context.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise ValueError("ssl_context is a context for servers; create it with ssl.create_default_context()")
    return FixedContext(context)


def _pem_files(given: Mapping[str, Any], check_hostname: bool) -> "PemFiles":
    from kafkalite.net.tls import PemFiles

    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        if not isinstance(given.get(name, ""), str | os.PathLike):
            raise TypeError(f"{name} is a {type(given[name]).__name__}, expected a path")
    for name in ("ssl_keyfile", "ssl_password"):
        if name in given and "ssl_certfile" not in given:
            raise ValueError(f"{name} needs ssl_certfile, the certificate of the key")
    return PemFiles(
        given.get("ssl_cafile"),
        given.get("ssl_certfile"),
        given.get("ssl_keyfile"),
        _text(given, "ssl_password") if "ssl_password" in given else None,
        check_hostname,
    )


def _mechanism(given: Mapping[str, Any]) -> ClientMechanism:
    mechanism = given.get("sasl_mechanism")
    if mechanism is None:
        raise ValueError(f"sasl_mechanism is not set, expected one of {', '.join(MECHANISMS)}")
    if not isinstance(mechanism, str):
        _check_credentials(given, ())
        return _user_defined(mechanism)
    if mechanism not in MECHANISMS:
        expected = f"expected one of {', '.join(MECHANISMS)}, or an object with name and begin()"
        raise ValueError(f"sasl_mechanism is {mechanism!r}, {expected}")
    if mechanism == "OAUTHBEARER":
        _check_credentials(given, ("sasl_token",))
        return _oauthbearer(given["sasl_token"])
    _check_credentials(given, ("sasl_username", "sasl_password"))
    username, password = _text(given, "sasl_username"), _text(given, "sasl_password")
    is_token = given.get("sasl_tokenauth", False)
    if not isinstance(is_token, bool):
        raise TypeError(f"sasl_tokenauth is a {type(is_token).__name__}, expected a bool")
    if mechanism == "PLAIN":
        if is_token:
            raise ValueError("sasl_tokenauth has no effect with PLAIN; set sasl_mechanism to SCRAM-SHA-256")
        from kafkalite.net.sasl.plain import PlainClient

        return PlainClient(username, password)
    from kafkalite.net.sasl.scram import ScramClient

    return ScramClient(mechanism, username, password, is_token=is_token)


def _check_credentials(given: Mapping[str, Any], wanted: tuple[str, ...]) -> None:
    for name in ("sasl_username", "sasl_password", "sasl_token"):
        if name in given and name not in wanted:
            raise ValueError(f"{name} has no effect with this sasl_mechanism; leave it out")
    for name in wanted:
        if name not in given:
            raise ValueError(f"sasl_mechanism {given['sasl_mechanism']} needs {name}")


def _user_defined(mechanism: Any) -> ClientMechanism:
    if not isinstance(getattr(mechanism, "name", None), str) or not callable(getattr(mechanism, "begin", None)):
        raise TypeError(f"sasl_mechanism is a {type(mechanism).__name__}, expected an object with name and begin()")
    checked: ClientMechanism = mechanism
    return checked


def _oauthbearer(get_token: object) -> "OAuthBearerClient":
    from kafkalite.net.sasl.oauthbearer import OAuthBearerClient

    if not callable(get_token):
        raise TypeError(f"sasl_token is a {type(get_token).__name__}, expected an async function that returns a token")
    return OAuthBearerClient(get_token)


def _text(given: Mapping[str, Any], name: str) -> str:
    """Return a credential. The text of an error does not contain it."""
    value = given[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is a {type(value).__name__}, expected a str")
    return value
