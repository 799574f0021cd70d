"""Which brokers are secured: a file for each, found by its port also in processes of tests."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from kafkalite.config.jaas import MODULES

AGAINST = "kafkalite-secured"
USER, PASSWORD, MECHANISM, PROTOCOL = "tester", "a secret of the tests", "SCRAM-SHA-512", "SASL_SSL"
HOST = "127.0.0.1"
VARIABLE = "KAFKALITE_TESTS_SECURED"  # the directory of the files


def is_wanted() -> bool:
    """Whether the broker under test is secured."""
    return os.environ.get("AGAINST") == AGAINST


def register(port: int, cafile: Path) -> None:
    """Clients of this port log in; the authority of the broker is in `cafile`."""
    (_directory() / str(port)).write_text(str(cafile))


def forget(port: int) -> None:
    """Another broker may have the port."""
    (_directory() / str(port)).unlink(missing_ok=True)


def cafile_of(addresses: str | Iterable[str]) -> str | None:
    """The authority of a secured broker, None for another one.

    Arguments:
        addresses: "host:port,host:port", or a sequence of addresses.
    """
    texts = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    for text in texts:
        host, _, port = text.strip().rpartition(":")
        path = _directory() / port
        if host in (HOST, "localhost") and port.isdigit() and path.exists():
            return path.read_text()
    return None


def librdkafka_login(address: str) -> dict[str, str]:
    """The settings of librdkafka's clients for a login, none for a broker that is not secured."""
    cafile = cafile_of(address)
    if cafile is None:
        return {}
    return {
        "security.protocol": PROTOCOL,
        "ssl.ca.location": cafile,
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


def java_login(address: str) -> dict[str, str]:
    """The settings of Java's clients for a login, none for a broker that is not secured."""
    cafile = cafile_of(address)
    if cafile is None:
        return {}
    module = MODULES[MECHANISM]
    return {
        "security.protocol": PROTOCOL,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": cafile,
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{module} required username="{USER}" password="{PASSWORD}";',
    }


def java_file(address: str) -> Path | None:
    """The same as a file for Java's tools, None for a broker that is not secured."""
    settings = java_login(address)
    if not settings:
        return None
    path = _directory() / f"{address.rpartition(':')[2]}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def _directory() -> Path:
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = tempfile.mkdtemp(prefix="kafkalite-secured-")
        atexit.register(shutil.rmtree, os.environ[VARIABLE], ignore_errors=True)
    return Path(os.environ[VARIABLE])
