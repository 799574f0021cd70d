"""Brokers of a cluster connect to each other with TLS and certificates on both sides."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from kafkalite_sdk import Admin, Producer
from kafkalite_sdk.admin.topic_types import NewTopic

from kafkalite.model import Principal
from kafkalite.server.broker import Broker
from tests.kit.certificates import Authority
from tests.kit.ports import free_port
from tests.kit.tls_broker import HOST, key_store

BROKERS = (1, 2)


def settings(authority: Authority, directory: Path, broker_id: int, name: str) -> dict[str, str]:
    """Settings of a broker whose certificate is for `name`."""
    pem = authority.issue(f"broker-{broker_id}", name)
    return {
        "broker.id": str(broker_id),
        "kafkalite.coordination.directory": str(directory / "coordination"),
        "listeners": f"PLAINTEXT://{HOST}:0,BROKERS://{HOST}:{free_port()}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SSL",
        "inter.broker.listener.name": "BROKERS",
        "listener.name.brokers.ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.cert.read_text(),
        **key_store(pem),
    }


@pytest.mark.timeout(300)
async def test_followers_fetch_over_tls(tmp_path: Path) -> None:
    """acks=all is answered once the other broker has the record, which it fetches over TLS."""
    authority = Authority(tmp_path / "tls")
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(
                Broker(str(tmp_path / f"data-{each}"), settings(authority, tmp_path, each, f"IP:{HOST}"))
            )
            for each in BROKERS
        ]
        address = brokers[0].address
        async with Admin(address) as admin:
            (await admin.topics.create(NewTopic("orders", partitions=2, replication_factor=2))).check()
        async with Producer(address, acks="all") as producer:
            for partition in (0, 1):
                await producer.send("orders", b"value", partition=partition)
        found = {each for broker in brokers for each in peer_principals(broker)}
        assert found == {Principal("User", "CN=broker-1"), Principal("User", "CN=broker-2")}
        registered = brokers[0].running.listening.registered_endpoints()
        assert {each.listener: each.security_protocol for each in registered} == {
            "PLAINTEXT": "PLAINTEXT",
            "BROKERS": "SSL",
        }


def peer_principals(broker: Broker) -> list[object]:
    """The principals of the open connections of other brokers."""
    driver = broker.running.listening._drivers["BROKERS"]
    return [each.principal for each in driver.reactor.connections()]
