"""Creates the files of `kafkalite security init`: an authority, certificates, and the settings that use them.

Private keys and passwords are in files that only their owner can read, and are never printed.
"""

import ipaddress
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkalite.config.jaas import MODULES
from kafkalite.net.authority import Authority

FILES = ("ca.pem", "ca.key", "broker.pem", "client.pem", "server.properties", "client.properties")
BROKER_NAME = "broker"  # common name of the brokers' certificate
PASSWORD_BYTES = 18
LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
HOST_NAME = re.compile(rf"{LABEL}(\.{LABEL})*")
HIDDEN = "..."


class SuperUserAccess(NamedTuple):
    """What the super user needs to connect: the address of the broker, credentials and certificates.

    Attributes:
        directory: has the certificates.
        host, port: advertised to clients.
        user, password: the credentials of the super user for PLAIN.
    """

    directory: Path
    host: str
    port: int
    user: str
    password: str

    def __repr__(self) -> str:
        return f"SuperUserAccess({self.user!r}, {self.host!r})"


def create_files(directory: Path, hosts: Sequence[str], port: int, user: str, days: int) -> dict[str, str]:
    """Create all files; return the texts of the settings, without passwords.

    Arguments:
        directory: created if missing; has none of the files.
        hosts: of brokers, the first one in the settings.
        port: for clients; the next one is for connections between brokers.
        user: the super user.
        days: how long certificates are valid.

    Raises ValueError: `cryptography` is missing. OSError.
    """
    directory = directory.absolute()
    authority = Authority("kafkalite test authority", days)
    names = list(dict.fromkeys((*hosts, *(("127.0.0.1",) if "localhost" in hosts else ()))))
    broker, client = authority.issue(BROKER_NAME, names, days), authority.issue(user, (), days)
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    access = SuperUserAccess(directory, hosts[0], port, user, password)
    settings = {
        "server.properties": server_properties(access),
        "client.properties": client_properties(access),
    }
    chain = authority.issued.certificate
    contents = {
        "ca.pem": chain,
        "ca.key": authority.issued.key,
        "broker.pem": broker.key + broker.certificate + chain,
        "client.pem": client.key + client.certificate + chain,
        **settings,
    }
    _write(directory, contents)
    return {name: text.replace(password, HIDDEN) for name, text in settings.items()}


def server_properties(access: SuperUserAccess) -> str:
    """Return the settings of a broker whose super user has this access."""
    directory, _, port, user, password = access
    host = _in_url(access.host)
    bound = host if _is_local(access.host) else "0.0.0.0"
    return _lines(
        {
            "listeners": f"SASL_SSL://{bound}:{port},SSL://{bound}:{port + 1}",
            "advertised.listeners": f"SASL_SSL://{host}:{port},SSL://{host}:{port + 1}",
            "inter.broker.listener.name": "SSL",
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{directory}/broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{directory}/ca.pem",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULES["PLAIN"]} required user_{user}="{password}";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{user};User:CN={BROKER_NAME}",
        }
    )


def client_properties(access: SuperUserAccess) -> str:
    """Return the settings with which the super user connects."""
    directory, host, port, user, password = access
    return _lines(
        {
            "bootstrap.servers": f"{_in_url(host)}:{port}",
            "security.protocol": "SASL_SSL",
            "ssl.cafile": f"{directory}/ca.pem",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
        }
    )


def _lines(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def is_host(text: str) -> bool:
    """Whether a text is a host name (RFC 1123, with underscores as in names of containers) or an IP address."""
    return _address(text) is not None or bool(HOST_NAME.fullmatch(text))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _write(directory: Path, contents: Mapping[str, str]) -> None:
    """Write files that only their owner can read, except certificates of authorities. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in contents.items():
        mode = 0o644 if name == "ca.pem" else 0o600
        with open(os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(text)
