"""The import table holds, and each of its rules catches a planted violation."""

from pathlib import Path

import pytest

from tests.tidy.layering import violations

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_holds() -> None:
    assert violations(ROOT) == []


@pytest.fixture
def planted(tmp_path: Path):
    """`planted(path, text)` answers the violations of a tree that holds just this file."""

    def judge(path: str, text: str) -> list[str]:
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
        return violations(tmp_path)

    return judge


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("kafkalite/records/batch.py", "import asyncio", "1: records may not import asyncio"),
        ("kafkalite/records/batch.py", "from kafkalite.protocol import codec", "records may not import protocol.codec"),
        ("kafkalite/net/peer.py", "def f():\n    import kafkalite.storage.log", "2: net may not import storage.log"),
        ("kafkalite/net/peer.py", "from kafkalite import storage", "net may not import storage"),
        ("kafkalite/net/peer.py", "from ..storage import log", "net may not import storage.log"),
        ("kafkalite/net/__init__.py", "from .. import state", "net may not import state"),
        (
            "kafkalite/state/isr.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kafkalite.cluster import image",
            "3: state may not import cluster.image",
        ),
        ("kafkalite/state/isr.py", "import time", "state may not import time"),
        ("kafkalite/state/isr.py", "from os import path", "state may not import os"),
        ("kafkalite/state/isr.py", "from kafkalite.clock import Clock", "state may not import clock.Clock"),
        ("kafkalite/storage/log.py", "import kafkalite.protocol.messages", "storage may not import protocol.messages"),
        ("kafkalite/coordination/tree.py", "from kafkalite._speedups import codec", "may not import _speedups.codec"),
        ("kafkalite/coordination/embedded.py", "import aiozk", "aiozk is for coordination.zookeeper only"),
        ("kafkalite/net/transport.py", "import uvloop", "uvloop is for"),
        ("kafkalite/cluster/image.py", "from kafkalite.server import broker", "cluster may not import server.broker"),
        ("kafkalite/server/broker.py", "import kafkalite.testing.disk", "server may not import testing.disk"),
        ("kafkalite/server/broker.py", "import_module('kafkalite.cli.serve')", "server may not import cli.serve"),
        ("kafkalite/cli/serve.py", "import tests.kit.brokers", "imports the tests"),
        ("kafkalite/errors.py", "import kafkalite.model", "errors may not import model"),
        ("kafkalite/helpers/x.py", "import kafkalite.errors", "room helpers is not in the table"),
        ("kafkalite/_speedups/log.pyx", "from kafkalite.storage cimport x", "_speedups may not import storage.x"),
        ("kafkalite/_speedups/log.pyx", "cimport kafkalite.model", "_speedups may not import model"),
        (
            "kafkalite/_speedups/log.pxd",
            "from kafkalite.storage.log import (  # types\n    Log,\n    Other)",
            "1: _speedups may not import storage.log.Log",
        ),
        ("kafkalite/_speedups/log.pyx", 'include "wire.pxi"', "includes wire.pxi: use cimport"),
        ("kafkalite/_speedups/log.pyi", "from kafkalite.records import b", "_speedups may not import records.b"),
        ("sdk/kafkalite_sdk/producer.py", "import kafkalite.cluster", "kafkalite_sdk may not import cluster"),
        ("sdk/kafkalite_sdk/producer.py", "import kafkalite.coordination.tree", "may not import coordination.tree"),
    ],
)
def test_a_planted_violation_is_caught(planted, path: str, text: str, said: str) -> None:
    found = planted(path, text)
    assert found
    assert found[0].startswith(f"{path}:")
    assert said in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("kafkalite/storage/log.py", "from kafkalite.protocol.stored import x\nfrom . import segment\nimport os"),
        ("kafkalite/state/isr.py", "from kafkalite.errors import KafkaErrorCode\nfrom kafkalite import model"),
        ("kafkalite/coordination/zookeeper.py", "import aiozk\nfrom kafkalite._speedups.storage.file import Disk"),
        ("kafkalite/_speedups/log.pyx", "from libc.string cimport memcpy\nfrom kafkalite._speedups.wire cimport take"),
        ("kafkalite/__init__.py", "from kafkalite.server.broker import Broker"),
        ("sdk/kafkalite_sdk/zk/consumer.py", "import kafkalite.coordination.tree"),
        ("kafkalite/cli/serve.py", "from kafkalite.server.broker import Broker\nimport uvloop"),
    ],
)
def test_what_is_allowed_passes(planted, path: str, text: str) -> None:
    assert planted(path, text) == []
