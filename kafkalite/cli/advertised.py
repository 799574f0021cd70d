"""Distinguishes a broker that is down from a wrong `advertised.listeners`: in both cases an address does not answer."""

import asyncio

from kafkalite_sdk import Admin, Environment

from kafkalite.cli.client_options import CLIENT_ID, Cluster, address_text
from kafkalite.errors import KafkaError
from kafkalite.net.client.connection import dial

PROBE_S = 5.0  # for the answer of the cluster, and for the connections to its brokers


async def advertised_wrongly(cluster: Cluster) -> bool:
    """Whether the cluster answers at an address of the command, but none of its brokers at an advertised address."""
    for address in cluster.addresses:
        brokers = await advertised_by(cluster, address_text(address))
        if brokers:
            return not any(await asyncio.gather(*(accepts(*each) for each in brokers)))
    return False


async def advertised_by(cluster: Cluster, address: str) -> list[tuple[str, int]]:
    """Return the addresses that a broker advertises for its cluster; empty = it does not answer."""
    settings = {"client_id": CLIENT_ID, **cluster.settings, "default_api_timeout_ms": PROBE_S * 1000}
    try:
        async with Admin(address, environment=Environment(dial=dial), **settings) as admin:
            return [(each.host, each.port) for each in (await admin.cluster.describe()).brokers]
    except KafkaError:
        return []


async def accepts(host: str, port: int) -> bool:
    """Whether an address accepts connections."""
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, UnicodeError):  # TimeoutError, too
        return False
    writer.close()
    return True
