"""The listener between brokers: which one it is, and when clients can use it, too."""

import logging

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.keys import ConfigError
from kafkalite.server.running.broker_listener import warn_if_shared

TWO = "EXTERNAL://0.0.0.0:9092,INTERNAL://10.0.0.1:9093"
MAP = "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT"


def config(listeners: str, name: str | None = None) -> BrokerConfig:
    more = {} if name is None else {"inter.broker.listener.name": name}
    return BrokerConfig({"listeners": listeners, "listener.security.protocol.map": MAP, **more})


@pytest.mark.parametrize(("name", "found"), [(None, "EXTERNAL"), ("INTERNAL", "INTERNAL"), ("internal", "INTERNAL")])
def test_listener_between_brokers_is_the_named_one_or_the_first(name: str | None, found: str) -> None:
    assert config(TWO, name).listener_between_brokers == found


def test_name_of_no_listener_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"inter.broker.listener.name: OTHER does not name one of .*EXTERNAL, INTERNAL"
    ):
        config(TWO, "OTHER")


def test_listeners_without_the_protocol_between_brokers_are_named() -> None:
    with pytest.raises(ConfigError, match=r"name one of the listeners \(SSL\) for connections between brokers"):
        BrokerConfig({"listeners": "SSL://localhost:9093"})


@pytest.mark.parametrize(
    ("listeners", "warned"),
    [
        ("PLAINTEXT://:9092", True),
        ("PLAINTEXT://0.0.0.0:9092", True),
        ("PLAINTEXT://10.0.0.1:9092", True),
        ("PLAINTEXT://broker1:9092", True),
        ("PLAINTEXT://localhost:9092", False),
        ("PLAINTEXT://127.0.0.1:9092", False),
        ("PLAINTEXT://[::1]:9092", False),
        (TWO, False),
    ],
)
def test_warning_where_clients_use_the_listener_between_brokers(
    listeners: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    warn_if_shared(config(listeners))
    assert ("inter.broker.listener.name" in caplog.text) == warned
