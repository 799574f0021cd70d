"""The fetcher of the SDK's consumer without sockets: `pytest perf/micro/test_consumer_fetch.py`.

One fetch of a consumer with many partitions, of which one has a record: request, response, `take`. The cost must not
depend on the number of partitions.
"""

import pytest

from tests.unit.sdk.fetch_rig import Rig, data
from tests.unit.sdk.test_fetched_records import batch

SESSION_ID = 7


@pytest.mark.parametrize("partitions", [10, 1000, 5000])
def test_fetch_with_one_active_partition(benchmark, partitions):
    benchmark.group = "consumer: one fetch, one active partition"
    rig = Rig(*[1] * partitions)
    rig.answer(rig.request(), session_id=SESSION_ID)
    offsets = [0] * partitions
    number = 0

    def fetch() -> None:
        nonlocal number
        number = (number + 1) % partitions
        rig.answer(rig.request(), data(batch(offsets[number], b"v"), number), session_id=SESSION_ID)
        offsets[number] += 1
        assert len(rig.take()) == 1

    benchmark(fetch)
