"""What the log of `serve` says about connections."""

import socket
from pathlib import Path

import pytest

from tests.story.cli.test_serve import Server, started

LISTEN = ["--listen", "127.0.0.1:0"]


def log_after(server: Server) -> str:
    """Stop the broker, and return its log."""
    assert server.stop() == 0
    return server.log()


def test_connections_are_in_a_log_of_level_debug(tmp_path: Path) -> None:
    with started(tmp_path / "log", [*LISTEN, "--log-level", "debug"], {}) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            client = connection.getsockname()[1]
        log = log_after(server)
    assert f"DEBUG   kafkalite.connections: 127.0.0.1:{client} connected to PLAINTEXT; 1 connections" in log
    assert f"127.0.0.1:{client} disconnected: end of stream; 0 connections" in log


GARBAGE = {
    "HTTP": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "this looks like HTTP or text"),
    "TLS": (bytes.fromhex("16030100c8010000c40303"), "this is a TLS handshake on a plaintext port"),
    "a negative length": ((-5).to_bytes(4, "big", signed=True), "a frame of -5 bytes is outside"),
    "2**31 - 1 bytes": ((2**31 - 1).to_bytes(4, "big"), "a frame of 2147483647 bytes is outside"),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_rejected_connections_are_one_warning_with_the_first_address(tmp_path: Path, case: str) -> None:
    data, text = GARBAGE[case]
    clients = []
    with started(tmp_path / "log", LISTEN, {}) as server:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                clients.append(connection.getsockname()[1])
                connection.sendall(data)
                assert connection.recv(1) == b""
        log = log_after(server)
    warnings = [line for line in log.splitlines() if "kafkalite.net" in line]
    assert len(warnings) == 1 and " WARNING " in warnings[0] and text in warnings[0], warnings
    assert f"127.0.0.1:{clients[0]}: " in warnings[0]


def test_a_connection_above_the_limit_of_its_address_is_one_warning(tmp_path: Path) -> None:
    with started(tmp_path / "log", [*LISTEN, "--set", "max.connections.per.ip=1"], {}) as server:
        with socket.create_connection(("127.0.0.1", server.port)):
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", server.port)) as refused:
                    assert refused.recv(1) == b""
        log = log_after(server)
    assert log.count("connection of 127.0.0.1 refused: it has 1 connections (max.connections.per.ip)") == 1
