"""A kafkalite broker with a TLS listener beside the plaintext one.

    python -m tests.kit.tls_broker DIRECTORY PLAINTEXT_PORT TLS_PORT

runs one on uvloop until SIGTERM. Its authority is DIRECTORY/tls/ca.pem.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import uvloop

from kafkalite.server.broker import Broker
from tests.kit.certificates import Authority, Pem

HOST = "127.0.0.1"


def key_store(pem: Pem, prefix: str = "") -> dict[str, str]:
    """Return the settings of a key store with these files as text.

    Arguments:
        pem: certificate and key.
        prefix: `listener.name.NAME.`, empty for all listeners.
    """
    return {
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.key": pem.key.read_text(),
        f"{prefix}ssl.keystore.certificate.chain": pem.cert.read_text(),
    }


def tls_broker(
    data: Path | None, pem: Pem, ports: tuple[int, int], settings: Mapping[str, str] | None = None
) -> Broker:
    """Return a broker.

    Arguments:
        data: log directory; None = a temporary one.
        pem: certificate and key of the TLS listener.
        ports: of the plaintext and of the TLS listener.
        settings: more settings.
    """
    listeners = f"PLAINTEXT://{HOST}:{ports[0]},SSL://{HOST}:{ports[1]}"
    own = {"listeners": listeners, "advertised.listeners": listeners, **key_store(pem)}
    return Broker(None if data is None else str(data), {**own, **(settings or {})})


async def main(directory: Path, ports: tuple[int, int]) -> None:
    authority = Authority(directory / "tls")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    pem = authority.issue("broker")
    async with tls_broker(directory / "data", pem, ports, {"offsets.topic.num.partitions": "4"}):
        await ended.wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), (int(sys.argv[2]), int(sys.argv[3]))))
