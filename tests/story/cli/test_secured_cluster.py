"""The commands of docs/security.md that give a running cluster TLS, users and ACLs: each block is run as shown.

Addresses become free ports. `kafkalite serve` ends the broker of its file, if it runs, and starts it in the background,
as a service manager does.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.ports import free_port
from tests.story.cli.conftest import ENVIRON, TIMEOUT_S

PAGE = Path(__file__).resolve().parents[3] / "docs" / "security.md"
TITLE = "## From plaintext to SASL_SSL with ACLs in a running cluster\n"
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"localhost:(9\d\d\d)")
ALONE = "kafkalite topic create denied --client-config alice.properties"
USERS = 4  # the block of the users and ACLs, after which clients of the plaintext listener continue
PLAINTEXT = "seq 10 | kafkalite produce orders -b localhost:9092"
ACLS = "kafkalite acl list --json --client-config security/client.properties"
WRAPPER = """#!/bin/bash
set -euo pipefail
if [ "$1" != serve ]; then exec {kafkalite} "$@"; fi
shift
if [ -f "$2.pid" ]; then
    pid=$(cat "$2.pid")
    kill "$pid"
    while [ -d "/proc/$pid" ] && ! grep -q "^State:.Z" "/proc/$pid/status" 2>/dev/null; do sleep 0.02; done
fi
mkfifo "$2.ready.$$"
{kafkalite} serve "$@" > "$2.ready.$$" 2>> "$2.log" &
echo $! > "$2.pid"
read -r line < "$2.ready.$$" || {{ cat "$2.log"; exit 1; }}
"""


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A directory with the command; the brokers of its files end with the test."""
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "kafkalite"
    command.write_text(WRAPPER.format(kafkalite=f"{shlex.quote(sys.executable)} -m kafkalite"))
    command.chmod(0o755)
    yield tmp_path
    for path in tmp_path.glob("*.pid"):
        os.kill(int(path.read_text()), signal.SIGTERM)


def script_of(block: str, ports: dict[str, int]) -> str:
    """A block with free ports."""
    return ADDRESS.sub(lambda found: f"localhost:{ports.setdefault(found[1], free_port())}", block)


def run(script: str, scratch: Path, code: int = 0) -> str:
    environment = {**ENVIRON, "PATH": f"{scratch / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=scratch, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    logs = "".join(path.read_text()[-3000:] for path in scratch.glob("*.log")) if done.returncode != code else ""
    assert done.returncode == code, f"{script}\nended with {done.returncode}:\n{done.stdout}\n{logs}"
    return done.stdout


def test_running_cluster_is_secured_as_documented(scratch: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text().partition(TITLE)[2].partition("\n## ")[0])
    ports: dict[str, int] = {}
    printed = []
    for number, block in enumerate(blocks):
        printed.append(run(script_of(block, ports), scratch))
        if number == USERS:
            run(script_of(PLAINTEXT, ports), scratch)
    assert len(blocks) == 8 and printed[6].count("no weak setting") == 2
    assert [line for line in printed[5].splitlines() if line.isdigit()] == [*map(str, range(1, 11))] * 2
    assert "AUTHORIZATION_FAILED" in run(ALONE, scratch, code=2)
    assert "ANONYMOUS" not in run(ACLS, scratch)
    for port in ("9092", "9093"):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("localhost", ports[port]), TIMEOUT_S)
