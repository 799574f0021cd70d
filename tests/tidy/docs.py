"""Runs what the documentation shows: every ```sh block of README.md and docs/, each as one shell session, the programs
of README.md (every ```python block; one with tests in it is run by pytest, with the shipped plugin), those of
docs/migration.md, and those of docs/ that run by themselves, beside a broker; the other ```python blocks there show
signatures. One that begins with the comment `# NAME.py` is a file of the page's ```sh blocks. Those of docs/sdk.md and
docs/troubleshooting.md run inside an async function with producer and consumer.

A block runs in a scratch directory with the checkout's own `kafkalite` and `make`. What listens on localhost:9092 for
the reader listens on a free port here; for the ZooKeeper zk1:2181 of a block a server of its protocol runs. A command
that serves runs until the block ends, and has to end cleanly then. A block with a command in the background is run as
one script, as a reader pastes it.
"""

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kafkalite.testing.thread import BrokerThread
from kafkalite.testing.zookeeper_thread import ZooKeeperThread
from tests.kit.ports import free_port

ADDRESS = "localhost:9092"
ZOOKEEPER = "zk1:2181"
# Too long for a test, or the very run this is part of.
LEFT_OUT = {"make test", "make bench", "make compare", "make torture"}
SERVES = re.compile(r"^(?:make run|kafkalite serve)\b(?!.*--help)")
READY = "kafkalite ready on"
# These connect to the broker of the block.
CLIENTS = "acl|quota|user|topic|group|transaction|produce|consume|cluster|config"
TIMEOUT_S = 120
OUTSIDE = "is outside the log of"  # what `group rewind` and `group reset` report of an offset that does not exist

_FILE = re.compile(r"# (\w+\.py)\n")
_BLOCK = re.compile(r"^( *)```(sh|python)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
_PROGRAM = "python shown.py"
_RUNS = re.compile(r"\b(?:asyncio\.run|TestClient)\(")
_AROUND_SNIPPET = """import asyncio

from kafkalite_sdk import Consumer, Producer


async def main():
    settings = {{"group": "billing", "auto_offset_reset": "earliest"}}
    async with Producer("localhost:9092") as producer, Consumer("localhost:9092", **settings) as consumer:
        await asyncio.gather(*(producer.send("orders", b"order") for _ in range(10)))
{snippet}

asyncio.run(main())
"""
_BESIDE = "orders"  # the topic of a broker in this process: it starts in a tenth of the time of `kafkalite serve`
# By name, as the checkout need not be installed; the settings of this checkout's own tests do not reach it.
_TESTS = "python -m pytest -q -p no:cacheprovider -p no:kafkalite -p kafkalite.testing.plugin -p no:asyncio shown.py"


class Block(NamedTuple):
    file: str
    line: int
    commands: tuple[str, ...]
    program: str = ""  # what stands in shown.py
    files: tuple[tuple[str, str], ...] = ()  # names and contents of other files
    topic: str | None = None  # of a broker beside it


def blocks(root: Path) -> list[Block]:
    """All blocks that leave something to run, in the order of their files."""
    found = []
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = path.read_text()
        files = tuple((named[1], block[3]) for block in _BLOCK.finditer(text) if (named := _FILE.match(block[3])))
        for block in _BLOCK.finditer(text):
            shown = (str(path.relative_to(root)), text.count("\n", 0, block.start()) + 1)
            if block[2] == "sh":
                if kept := tuple(command for command in _commands(block[3]) if not _left_out(command)):
                    found.append(Block(*shown, kept, files=files))
            elif _FILE.match(block[3]):
                continue
            elif path.name == "README.md":
                found.append(Block(*shown, (_TESTS if "def test_" in block[3] else _PROGRAM,), block[3]))
            elif path.name == "migration.md" or _RUNS.search(block[3]):
                found.append(Block(*shown, (_PROGRAM,), block[3], topic=_BESIDE))
            elif path.name in ("sdk.md", "troubleshooting.md"):
                snippet = _AROUND_SNIPPET.format(snippet=textwrap.indent(block[3], " " * 8))
                found.append(Block(*shown, (_PROGRAM,), snippet, topic=_BESIDE))
    return found


def dead_links(root: Path) -> list[str]:
    """Links of the documentation to files that are not there, as `file: link`."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    links = [(page, link) for page in pages for link in _LINK.findall(page.read_text())]
    return [f"{page.relative_to(root)}: {link}" for page, link in links if not (page.parent / link).exists()]


def _commands(text: str) -> list[str]:
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def _left_out(command: str) -> bool:
    return " ".join(command.split()[:2]) in LEFT_OUT


class Shell:
    """One block's session in `scratch`. Raises AssertionError with all output when a command fails."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.scratch = scratch
        self.address = f"127.0.0.1:{free_port()}"
        self.servers: list[subprocess.Popen[str]] = []
        tools = scratch / "bin"
        tools.mkdir(parents=True)
        kafkalite = f"{shlex.quote(sys.executable)} -m kafkalite"
        _script(
            tools / "kafkalite",
            f'case "$*" in *--zookeeper*|*zookeeper://*) exec {kafkalite} "$@";; esac\n'
            f'case "$1" in serve) shift; exec {kafkalite} serve --listen {self.address} "$@";;\n'
            f'{CLIENTS}) exec {kafkalite} "$@" --bootstrap-server {self.address};;\n'
            f'*) exec {kafkalite} "$@";; esac',
        )
        _script(tools / "python", f'exec {shlex.quote(sys.executable)} "$@"')
        # `make run` builds nothing here: the tests run on what is built already.
        make = shutil.which("make") or "make"
        _script(tools / "make", f'[ "$1" = run ] || exec {make} -C {shlex.quote(str(root))} "$@"\nexec kafkalite serve')
        self.environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": f"{root}:{root}/sdk"}

    def run(self, block: Block) -> None:
        if block.topic is not None:
            with BrokerThread() as broker:
                broker.create_topic(block.topic)
                self.address = broker.address
                self._run(block)
            return
        if not any(ZOOKEEPER in command for command in block.commands):
            self._run(block)
            return
        with ZooKeeperThread() as zookeeper:
            commands = (command.replace(ZOOKEEPER, zookeeper.address) for command in block.commands)
            files = ((name, content.replace(ZOOKEEPER, zookeeper.address)) for name, content in block.files)
            self._run(block._replace(commands=tuple(commands), files=tuple(files)))

    def _run(self, block: Block) -> None:
        for name, content in block.files:
            (self.scratch / name).write_text(content)
        if block.program:
            host, port = self.address.split(":")
            program = block.program.replace('"localhost", 9092', f'"{host}", {port}').replace(ADDRESS, self.address)
            (self.scratch / "shown.py").write_text(program)
        lines = [command.replace(ADDRESS, self.address) for command in block.commands]
        if any(line.endswith("&") for line in lines):
            self._paste(lines)
            return
        try:
            for line in lines:
                if SERVES.match(line):
                    self._serve(line)
                else:
                    self._wait_for(line)
        finally:
            self._stop()

    def _paste(self, lines: Sequence[str]) -> None:
        script = "\n".join(lines)
        command = ["bash", "-euo", "pipefail", "-c", script]
        with (
            tempfile.TemporaryFile("w+") as output,
            subprocess.Popen(
                command, cwd=self.scratch, env=self.environ, stdout=output, stderr=output, start_new_session=True
            ) as shell,
        ):
            try:
                code = shell.wait(TIMEOUT_S)
            finally:
                with suppress(ProcessLookupError):  # the script has stopped its servers
                    os.killpg(shell.pid, signal.SIGKILL)
            output.seek(0)
            assert code == 0, f"{script}\nended with {code}:\n{output.read()}"

    def _wait_for(self, line: str) -> None:
        script = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(
            script, cwd=self.scratch, env=self.environ, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, f"{line}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert OUTSIDE not in done.stderr, f"{line}\nmoves a group to another offset:\n{done.stderr}"

    def _serve(self, line: str) -> None:
        script = ["bash", "-c", f"exec {line.rstrip('& ')}"]
        server = subprocess.Popen(script, cwd=self.scratch, env=self.environ, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        if not any(READY in printed for printed in server.stdout):
            server.stdout.close()
            raise AssertionError(f"{line}\nended with {server.wait(TIMEOUT_S)} before it was ready")
        self.servers.append(server)

    def _stop(self) -> None:
        while self.servers:
            server = self.servers.pop()
            server.send_signal(signal.SIGTERM)
            try:
                code = server.wait(TIMEOUT_S)
            finally:
                server.kill()
                if server.stdout is not None:
                    server.stdout.close()
            assert code == 0, f"the server ended with {code}"


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
