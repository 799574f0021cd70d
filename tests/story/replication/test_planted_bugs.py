"""The runs with three replicas find planted bugs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cluster.partition import leader
from kafkalite.errors import KafkaError
from kafkalite.testing.virtual_loop import VirtualTimeError
from tests.story.replication import test_three_replicas as runs

Run = Callable[[Path], None]


def acknowledged_before_the_followers_have_it(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is the log end of the leader."""

    def own_end(end_offset: int, *_others: Any) -> int:
        return end_offset

    patch.setattr(leader, "lowest_end_offset", own_end)


@pytest.mark.parametrize(
    ("bug", "run"),
    [
        (
            acknowledged_before_the_followers_have_it,
            runs.test_a_record_is_acknowledged_when_the_isr_has_it,
        ),
    ],
)
def test_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, KafkaError, VirtualTimeError)) as found:
        run(tmp_path)
    print(f"{bug.__name__}: {found.value}".splitlines()[0])
