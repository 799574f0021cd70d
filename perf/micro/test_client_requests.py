"""A produce and a fetch of a client without sockets: `pytest perf/micro/test_client_requests.py`.

Each cycle has requests of one record with acks=1 and fetches of one record, from the frame to its response. `quotas`
are those that the broker has: none, one of another user, which applies to no request, or high ones of all clients.

For instructions: `valgrind --tool=callgrind python -m perf.micro.test_client_requests CYCLES [QUOTAS]`, with two
numbers of cycles; the difference is the cost of the cycles.
"""

import asyncio
import sys

import pytest

from kafkalite.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from tests.kit.server import Hub, Wire, batch, fetch_request, produce_request, running

REQUESTS = 10
PRODUCE_VERSION, FETCH_VERSION = 12, 12
Entry = AlterClientQuotasRequest.EntryData
QUOTAS = {"none": None, "another": "mallory", "all": ""}
KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


async def set_quotas(client, quotas):
    """Limit one user, or by "" all users, by rates that no client reaches."""
    user = QUOTAS[quotas]
    if user is None:
        return
    entity = [Entry.EntityData(entity_type="user", entity_name=user or None)]
    ops = [Entry.OpData(key=key, value=1e12) for key in KEYS]
    response = await client.call(AlterClientQuotasRequest(entries=[Entry(entity=entity, ops=ops)]))
    assert response.entries[0].error_code == 0


async def requests_of(client, quotas):
    """Return a function that sends the requests of a cycle, and receives their responses."""
    await client.create("t")
    await set_quotas(client, quotas)
    await client.produce("t", batch(b"value"))
    wire = Wire(Hub(client.broker))
    produce = produce_request("t", (0, batch(b"value")), acks=1), PRODUCE_VERSION
    fetch = fetch_request("t", (0, 0), partition_max_bytes=1), FETCH_VERSION

    def cycle():
        for each in (produce, fetch):
            wire.send(*[each] * REQUESTS)
            responses = wire.answers()
            assert len(responses) == REQUESTS and not responses[0].throttle_time_ms

    return cycle


@pytest.mark.parametrize("quotas", QUOTAS)
@pytest.mark.benchmark(group=f"{REQUESTS} produces and {REQUESTS} fetches")
async def test_produce_and_fetch(benchmark, quotas):
    async with running() as client:
        benchmark(await requests_of(client, quotas))


async def main(cycles, quotas="none"):
    async with running() as client:
        cycle = await requests_of(client, quotas)
        for _ in range(int(cycles)):
            cycle()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
