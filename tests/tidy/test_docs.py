"""Every command and program in the documentation works, and its links are valid."""

from pathlib import Path

import pytest

from tests.tidy.docs import Block, Shell, blocks, dead_links

ROOT = Path(__file__).resolve().parents[2]
SHOWN = blocks(ROOT)


@pytest.mark.parametrize("block", SHOWN, ids=[f"{block.file}-{block.line}" for block in SHOWN])
def test_documented_commands_work(block: Block, tmp_path: Path) -> None:
    Shell(ROOT, tmp_path).run(block)


def test_links_are_valid() -> None:
    assert dead_links(ROOT) == []


def test_failed_command_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with 3"):
        Shell(ROOT, tmp_path / "command").run(Block("planted", 1, ("true", "(exit 3) | cat")))
    with pytest.raises(AssertionError, match="ended with 3:\nmarked\n"):
        Shell(ROOT, tmp_path / "pasted").run(Block("planted", 1, ("sleep 60 &", "echo marked", "(exit 3)", "kill %1")))
