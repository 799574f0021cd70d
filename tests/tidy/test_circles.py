"""No modules and no sibling folders import each other, and `circles` detects it if they do."""

from pathlib import Path

import pytest

from tests.tidy.circles import folder_circles, module_circles, read_graph

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return read_graph(ROOT)


def test_no_modules_import_each_other(graph: dict[str, set[str]]) -> None:
    assert module_circles(graph) == []


def test_no_sibling_folders_import_each_other(graph: dict[str, set[str]]) -> None:
    assert folder_circles(graph) == []


def _planted(root: Path, files: dict[str, str]) -> dict[str, set[str]]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return read_graph(root)


@pytest.mark.parametrize(
    "closing",
    [
        "from kafkalite.storage.log import Log",
        "def append() -> None:\n    from kafkalite.storage.log import Log",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .log import Log",
        "import kafkalite.storage.log",
    ],
)
def test_modules_that_import_each_other_are_a_circle(tmp_path: Path, closing: str) -> None:
    graph = _planted(
        tmp_path,
        {
            "kafkalite/storage/log.py": "from kafkalite.storage.roll import roll",
            "kafkalite/storage/roll.py": "from kafkalite.storage.segment import Segment",
            "kafkalite/storage/segment.py": closing,
            "kafkalite/storage/manager.py": "from kafkalite.storage.log import Log",
        },
    )
    assert module_circles(graph) == ["kafkalite.storage: log roll segment"]
    assert folder_circles(graph) == []


def test_declarations_of_cython_count_for_their_module(tmp_path: Path) -> None:
    graph = _planted(
        tmp_path,
        {
            "kafkalite/_speedups/a.pxd": "from kafkalite._speedups.b cimport B",
            "kafkalite/_speedups/a.pyx": "cdef class A: pass",
            "kafkalite/_speedups/b.pyx": "from kafkalite._speedups.a cimport A",
        },
    )
    assert module_circles(graph) == ["kafkalite._speedups: a b"]


def test_folders_whose_modules_import_each_other_are_a_circle(tmp_path: Path) -> None:
    graph = _planted(
        tmp_path,
        {
            "sdk/kafkalite_sdk/consumer/consumer.py": "from kafkalite_sdk.streams.queues import Queue",
            "sdk/kafkalite_sdk/consumer/positions.py": "",
            "sdk/kafkalite_sdk/streams/queues.py": "",
            "sdk/kafkalite_sdk/streams/deep/streams.py": "from kafkalite_sdk.consumer.positions import Positions",
        },
    )
    assert module_circles(graph) == []
    assert folder_circles(graph) == ["kafkalite_sdk: consumer streams"]


def test_folder_and_the_folders_in_it_are_no_siblings(tmp_path: Path) -> None:
    graph = _planted(
        tmp_path,
        {
            "sdk/kafkalite_sdk/consumer/__init__.py": "",
            "sdk/kafkalite_sdk/consumer/consumer.py": "from kafkalite_sdk.consumer.streams.queues import Queue",
            "sdk/kafkalite_sdk/consumer/positions.py": "",
            "sdk/kafkalite_sdk/consumer/streams/queues.py": "from kafkalite_sdk.consumer.positions import Positions",
        },
    )
    assert module_circles(graph) == folder_circles(graph) == []
