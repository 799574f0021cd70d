"""Rates of new connections: of the broker, of listeners, of addresses (KIP-612)."""

from __future__ import annotations

import pytest

from kafkalite.state.quotas import connection_rates
from kafkalite.state.quotas.connection_rates import ADMITTED, Admission, ConnectionRates
from kafkalite.state.quotas.rates import Windows

WINDOWS = Windows(2, 1000)


def accept(rates: ConnectionRates, count: int, listener: str = "CLIENTS", host: str = "10.0.0.1") -> Admission:
    """The result of the last one of several connections at one moment."""
    for _ in range(count):
        last = rates.charge(listener, host, 5000)
    return last


def test_without_limits_every_connection_is_admitted() -> None:
    rates = ConnectionRates(WINDOWS)
    assert not rates
    assert accept(rates, 1000) is ADMITTED


def test_listener_waits_above_the_rate_of_the_broker_and_its_own() -> None:
    rates = ConnectionRates(WINDOWS, exempt=["INTERNAL"])
    rates.limit_broker(10)
    rates.limit_listener("INTERNAL", 20)
    assert rates
    assert accept(rates, 10) == ADMITTED
    assert accept(rates, 1) == Admission(listener_ms=100)
    assert accept(rates, 100) == Admission(listener_ms=1000), "one window at most"
    assert accept(rates, 20, "INTERNAL") == ADMITTED, "the rate of the broker does not limit it"
    assert accept(rates, 2, "INTERNAL") == Admission(listener_ms=100)
    rates.limit_broker(None)
    rates.limit_listener("INTERNAL", None)
    assert not rates


def test_address_above_its_rate_uses_up_no_other_rate() -> None:
    rates = ConnectionRates(WINDOWS)
    rates.limit_broker(10)
    rates.limit_address("10.0.0.1", 2)
    assert accept(rates, 2) == ADMITTED
    assert accept(rates, 50) == Admission(address_ms=500)
    assert accept(rates, 8, host="10.0.0.2") == ADMITTED, "the refused ones are not charged"
    rates.limit_address(None, 3)
    assert accept(rates, 4, host="10.0.0.3").address_ms > 0
    rates.limit_address("10.0.0.1", None)
    assert accept(rates, 1).address_ms == 0, "now it has the default"
    rates.limit_address(None, None)
    rates.limit_broker(None)
    assert not rates and accept(rates, 100) is ADMITTED


def test_number_of_addresses_is_bounded(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(connection_rates, "ADDRESSES_MAX", 10)
    rates = ConnectionRates(WINDOWS)
    rates.limit_address(None, 1)
    for index in range(100):
        accept(rates, 1, host=f"10.0.1.{index}")
    assert len(rates._meters) == 10


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("2001:0DB8::1", "2001:db8::1"),
        ("::ffff:10.0.0.9", "10.0.0.9"),
        ("10.0.0.9", "::ffff:a00:9"),
        ("fe80::1", "fe80::1%eth0"),
        ("broker.example", "broker.example"),
    ],
)
def test_address_has_its_limit_however_it_is_written(written: str, host: str) -> None:
    rates = ConnectionRates(WINDOWS)
    rates.limit_address(written, 2)
    assert accept(rates, 50, host=host).address_ms > 0
    rates.limit_address(host, None)
    assert accept(rates, 50, host=host) == ADMITTED and not rates


def test_spellings_of_one_address_are_counted_together() -> None:
    rates = ConnectionRates(WINDOWS)
    rates.limit_address(None, 2)
    assert accept(rates, 2, host="10.0.0.9") == ADMITTED
    assert accept(rates, 1, host="::ffff:10.0.0.9").address_ms > 0
    rates.limit_address("10.0.0.9", 100)
    assert accept(rates, 50, host="::ffff:0a00:0009") == ADMITTED, "one limit"
    assert len(rates._meters) == 1
