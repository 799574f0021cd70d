"""A process that is started on a copy of a log directory is refused; the process that was copied goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.brokers import Kafkalite
from tests.kit.running_copy import copy_running
from tests.torture.test_producer_ids import COORDINATION, TOPIC, cluster_of, first_record, log_end

pytestmark = [pytest.mark.torture, pytest.mark.timeout(300)]
CANNOT_START = 2


def test_copy_is_refused_with_the_address_of_the_broker_which_goes_on(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster:
        cluster.create_topic(TOPIC, 1)
        original = cluster.brokers[1]
        copy = Kafkalite(tmp_path / "copy", {COORDINATION: str(tmp_path / "tree"), "broker.id": "1"})
        copy_running(original.data, copy.data)
        assert first_record(original.address)[1] == 0, "a record that the copy does not have"
        copy.launch()
        assert copy.wait() == CANNOT_START
        last = copy.said().splitlines()[-1]
        assert f"{copy.data} is a copy of the log directory of broker 1" in last, copy.said()
        assert f"alive, at PLAINTEXT://{original.address}" in last, copy.said()
        assert original.running() and cluster.agreed().ports == {1: original.port}
        assert first_record(original.address)[1] == 1
        assert log_end(original.address) == 2
