"""The modules that `serve` imports before its first answer: no messages, handlers and groups without a request."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import asyncio, json, socket, struct, sys
from kafkalite.cli import main, serve
from kafkalite.server.broker import Broker

def ask(port, request):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        return connection.recv(size, socket.MSG_WAITALL)

async def first_answers(requests):
    async with Broker(sys.argv[1]) as broker:
        port = int(broker.address.rpartition(":")[2])
        for key, version in requests:
            answer = await asyncio.to_thread(ask, port, struct.pack(">hhih", key, version, 7, -1) + bytes(4))
            assert answer[:4] == struct.pack(">i", 7)
        print(json.dumps(sorted(name for name in sys.modules if name.startswith("kafkalite."))))

asyncio.run(first_answers(json.loads(sys.argv[2])))
"""
API_VERSIONS, LIST_GROUPS, METADATA = (18, 0), (16, 0), (3, 1)
ON_REQUEST = (
    r"protocol\.messages\.(?!api_versions)",
    r"protocol\.(extensions|stored)\.",
    r"server\.handlers\.(?!api_versions)",
    r"coordinators\.",
    r"state\.groups\.",
    r"_speedups\.groups\.",
    r"(testing|net\.client|net\.peer|storage\.verify|cli\.(?!main|serve|failure|standard_streams|gc_tuning))\b",
)
MODULES_MAX = 215  # an empty package costs 0.02 % of the instructions of a start; logs and roles of replicas have 7


def imported(directory: Path, *requests: tuple[int, int]) -> list[str]:
    """Return the modules of a broker that has answered these requests (key and version), without the first part."""
    command = [sys.executable, "-c", CODE, str(directory), json.dumps(requests)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [name.removeprefix("kafkalite.") for name in json.loads(done.stdout)]


def test_messages_handlers_and_groups_are_not_imported_before_the_first_answer(tmp_path: Path) -> None:
    modules = imported(tmp_path, API_VERSIONS)
    assert [name for name in modules for pattern in ON_REQUEST if re.match(pattern, name)] == []
    assert len(modules) <= MODULES_MAX, "a start has become slower: import on first use what it does not need"


@pytest.mark.parametrize(
    ("request_", "module"),
    [(METADATA, "server.handlers.metadata"), (LIST_GROUPS, "coordinators.group.coordinator")],
    ids=["Metadata", "ListGroups"],
)
def test_first_request_of_a_key_imports_its_handler(tmp_path: Path, request_: tuple[int, int], module: str) -> None:
    assert module in imported(tmp_path, request_)
