"""Every command in the documentation works, and one that does not would be seen."""

from pathlib import Path

import pytest

from tests.tidy.docs import Block, Shell, blocks, dead_links

ROOT = Path(__file__).resolve().parents[2]
SHOWN = blocks(ROOT)


@pytest.mark.parametrize("block", SHOWN, ids=[f"{block.file}-{block.line}" for block in SHOWN])
def test_what_is_shown_works(block: Block, tmp_path: Path) -> None:
    Shell(ROOT, tmp_path).run(block)


def test_links_lead_somewhere(tmp_path: Path) -> None:
    assert dead_links(ROOT) == []
    (tmp_path / "README.md").write_text("[a](docs/a.md#part) [b](https://example.org/b) [self](README.md)")
    assert dead_links(tmp_path) == ["README.md: docs/a.md"]


def test_blocks_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(
        "a\n```sh\nmake test\nmake  bench X=1\n```\n\n```sh\n# why\necho a \\\n  b\n```\n"
    )
    (tmp_path / "docs/a.md").write_text("```python\nfalse\n```\n- item\n  ```sh\n  true\n  ```\n")
    assert blocks(tmp_path) == [Block("README.md", 7, ("echo a    b",)), Block("docs/a.md", 5, ("true",))]


def test_programs_of_the_readme_are_found(tmp_path: Path) -> None:
    tests = "def test_a(): pass\n"
    (tmp_path / "README.md").write_text(f"```python\nx = 1\n```\n```python\n{tests}```\n")
    program, test = blocks(tmp_path)
    assert (program.line, program.program, program.commands) == (1, "x = 1\n", ("python shown.py",))
    assert (test.line, test.program) == (4, tests)
    assert "-m pytest" in test.commands[0]


def test_programs_of_the_docs_run_beside_a_broker(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").touch()
    (tmp_path / "docs/a.md").write_text(
        "```python\ndef signature(): ...\n```\n```python\nimport asyncio\nfrom kafkalite.net.peer import Peer\n"
        'async def main():\n    async with Peer("localhost", 9092): raise SystemExit(4)\nasyncio.run(main())\n```\n'
    )
    (program,) = blocks(tmp_path)
    assert program.line == 4
    with pytest.raises(AssertionError, match=r"python shown\.py\nended with 4"):
        Shell(ROOT, tmp_path / "scratch").run(program)


def test_a_planted_failure_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with 3"):
        Shell(ROOT, tmp_path).run(Block("planted", 1, ("true", "(exit 3) | cat")))


def test_a_planted_failure_of_a_program_is_caught(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "```python\nraise SystemExit(3)\n```\n```python\ndef test_a(kafkalite_topic): assert not kafkalite_topic\n```\n"
    )
    program, test = blocks(tmp_path)
    with pytest.raises(AssertionError, match="ended with 3"):
        Shell(ROOT, tmp_path / "program").run(program)
    with pytest.raises(AssertionError, match="assert not 'test_a-1'"):
        Shell(ROOT, tmp_path / "test").run(test)


def test_a_pasted_block_that_fails_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with 3:\nmarked\n"):
        Shell(ROOT, tmp_path).run(Block("planted", 1, ("sleep 60 &", "echo marked", "(exit 3)", "kill %1")))


def test_a_server_that_never_gets_ready_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with 2 before it was ready"):
        Shell(ROOT, tmp_path).run(Block("planted", 1, ("kafkalite serve --no-such-option",)))


def test_the_command_is_the_checkouts(tmp_path: Path) -> None:
    Shell(ROOT, tmp_path).run(Block("planted", 1, ("kafkalite --version > said", "grep kafkalite said")))
