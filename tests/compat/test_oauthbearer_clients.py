"""Other clients that log in by OAUTHBEARER with a signed token: confluent-kafka and aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider

from kafkalite.server.broker import Broker
from tests.kit.clients.confluent import QUIET
from tests.kit.isolated import dropped_later, killable
from tests.kit.tokens import USER, Issuer


@killable
def with_confluent(address: str, token: str) -> str:
    """Produce one record with librdkafka; returns the error of the delivery, or nothing."""
    errors: list[str] = []
    producer = ck.Producer(
        {
            "bootstrap.servers": address,
            "log_level": QUIET,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + 300),
            "error_cb": lambda error: errors.append(error.name()),
        }
    )
    dropped_later(producer)
    producer.produce("orders", b"value")
    while len(producer) and "_AUTHENTICATION" not in errors:
        producer.poll(0.1)
    return "" if not len(producer) else "rejected"


def with_aiokafka(address: str, token: str) -> str:
    """Produce one record with aiokafka."""

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return token

    async def run() -> str:
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        )
        try:
            await producer.start()
            await producer.send_and_wait("orders", b"value")
        except Exception as error:
            return "rejected" if "uthentication" in repr(error) or "bootstrap" in repr(error) else repr(error)
        finally:
            await producer.stop()
        return ""

    return asyncio.run(run())


@pytest.mark.parametrize("client", [with_confluent, with_aiokafka])
async def test_clients_with_tokens(tmp_path: Path, client: Callable[[str, str], str]) -> None:
    issuer = Issuer()
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        **issuer.publish(tmp_path / "keys.json"),
    }
    async with Broker(settings=settings) as broker:
        assert await asyncio.to_thread(client, broker.address, issuer.token()) == ""
        assert await asyncio.to_thread(client, broker.address, issuer.unsigned(sub=USER)) == "rejected"
