"""The runs with three replicas find planted bugs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cluster.partition import leader
from kafkalite.errors import KafkaError
from kafkalite.state.controller import brokers
from kafkalite.testing.virtual_loop import VirtualTimeError
from tests.story.replication import test_three_replicas as runs

Run = Callable[[Path], None]


def acknowledged_before_the_followers_have_it(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is the log end of the leader."""

    def own_end(end_offset: int, *_others: Any) -> int:
        return end_offset

    patch.setattr(leader, "lowest_end_offset", own_end)


def restarted_broker_kept_in_the_isr(patch: pytest.MonkeyPatch) -> None:
    """A controller does not remove a broker that has restarted from the in-sync replicas."""

    def ignored(*_arguments: Any) -> Any:
        yield from ()

    patch.setattr(brokers, "_restarted", ignored)


@pytest.mark.parametrize(
    ("bug", "run"),
    [
        (acknowledged_before_the_followers_have_it, runs.test_acknowledged_records_are_on_all_replicas),
        (restarted_broker_kept_in_the_isr, runs.test_a_power_failure_of_one_broker_loses_nothing),
    ],
)
def test_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, KafkaError, VirtualTimeError)) as found:
        run(tmp_path)
    print(f"{bug.__name__}: {found.value}".splitlines()[0])
