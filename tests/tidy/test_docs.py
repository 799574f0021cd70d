"""Every command and program in the documentation works, and its links are valid."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.cli.main import COMMANDS
from tests.kit.fork_server import ForkServer
from tests.tidy.docs import Block, Shell, blocks, dead_links, modules_of

ROOT = Path(__file__).resolve().parents[2]
SHOWN = blocks(ROOT)
IMPORTED = (
    *(f"kafkalite.cli.{name}" for name in COMMANDS if name not in ("perf", "pipeline")),
    "asyncio",
    "uvloop",
    "kafkalite.server",
    "kafkalite_sdk.admin",
    "kafkalite_sdk.blocking",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Starts the commands: several hundred, for which imports would take most of the time."""
    with ForkServer(IMPORTED, modules_of(ROOT), tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.mark.parametrize("block", SHOWN, ids=[f"{block.file}-{block.line}" for block in SHOWN])
def test_documented_commands_work(block: Block, tmp_path: Path, server: ForkServer) -> None:
    Shell(ROOT, tmp_path, server.python).run(block)


def test_links_are_valid() -> None:
    assert dead_links(ROOT) == []


def test_failed_command_is_reported(tmp_path: Path, server: ForkServer) -> None:
    with pytest.raises(AssertionError, match="ended with 3"):
        Shell(ROOT, tmp_path / "command").run(Block("planted", 1, ("true", "(exit 3) | cat")))
    with pytest.raises(AssertionError, match=r"ended with 2:\nkafkalite: No such command 'copy'"):
        Shell(ROOT, tmp_path / "forked", server.python).run(Block("planted", 1, ("kafkalite copy",)))
    with pytest.raises(AssertionError, match=r"(?s)ended with 1:\n.*\nZeroDivisionError"):
        Shell(ROOT, tmp_path / "program", server.python).run(Block("planted", 1, ("python shown.py",), "1 / 0"))
    with pytest.raises(AssertionError, match="ended with 3:\nmarked\n"):
        Shell(ROOT, tmp_path / "pasted").run(Block("planted", 1, ("sleep 60 &", "echo marked", "(exit 3)", "kill %1")))
