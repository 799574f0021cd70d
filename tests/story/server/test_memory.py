"""How much memory one connection can make the broker hold."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from kafkalite._speedups import codec
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from tests.kit.brokers import Kafkalite
from tests.kit.fuzzing import BlockingClient, framed, memory_peak_kib, read_answer
from tests.kit.server import GZIP, batch, outcomes, produce_request

MIB = 1 << 20
COUNT, SIZE = 200, MIB - 10_000
GROWTH_KIB = 100 * 1024  # 32 MiB of requests and what is made of them; 38 MiB were measured, without a bound 202 MiB
ENGINE = os.environ.get("KAFKALITE_ENGINE", "c")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafkalite]:
    broker = Kafkalite(tmp_path / "broker", {})
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


@pytest.mark.skipif(ENGINE != "c", reason="the sanitizer keeps what was freed")
def test_large_compressed_batches_without_end_are_read_as_they_are_answered(broker: Kafkalite) -> None:
    """Each is inspected outside the loop, so the others queue up; without a bound all of them would be in memory."""
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    request = produce_request("t", (0, batch(os.urandom(SIZE), codec=GZIP)))
    frame = framed(codec.encode_request(request, 12, 5, "flood"))
    with BlockingClient(broker.port) as client:
        assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics[0].error_code == 0
        before = memory_peak_kib(broker.pid)
        sender = Thread(target=lambda: [client.send(frame) for _ in range(COUNT)])
        sender.start()
        for _ in range(COUNT):
            answer = client.receive()
            assert answer is not None
            (outcome,) = outcomes(read_answer(ProduceRequest, 12, 5, answer))
            assert outcome.error_code == 0
        sender.join()
        assert outcome.base_offset == COUNT - 1
        grown = memory_peak_kib(broker.pid) - before
        assert grown < GROWTH_KIB, f"{grown} KiB for {COUNT} requests of {len(frame)} bytes"
