"""The commands over TLS, with settings of a file and of the command line."""

import asyncio
import sys
from pathlib import Path

from tests.kit.certificates import Authority
from tests.kit.ports import free_port
from tests.kit.tls_broker import HOST, tls_broker
from tests.story.cli.conftest import ENVIRON


async def run(*args: str, stdin: bytes = b"") -> tuple[int | None, str, str]:
    """Exit code, output and errors of a command."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kafkalite", *args, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRON
    )
    output, errors = await process.communicate(stdin)
    return process.returncode, output.decode(), errors.decode()


async def test_commands_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ports = free_port(), free_port()
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={HOST}:{ports[1]}\nsecurity.protocol=SSL\nssl.ca.location={authority.cert}\n")
    async with tls_broker(None, authority.issue("broker"), ports):
        client = ("--client-config", str(config))
        assert await run("topic", "create", "orders", *client) == (0, "created orders with 1 partition(s)\n", "")
        sent = await run("produce", "orders", *client, stdin=b"one\ntwo\n")
        assert sent == (0, "", "sent 2 record(s) to orders\n")
        options = [f"-X{each}" for each in ("security.protocol=SSL", f"ssl.cafile={authority.cert}")]
        plain = await run("consume", "orders", "-e", "-b", f"{HOST}:{ports[1]}", *options)
        assert plain == (0, "one\ntwo\n", "")
        assert (await run("group", "list", *client))[0] == 0
        code, _, said = await run("topic", "list", "-b", f"{HOST}:{ports[1]}", "-X", "security.protocol=SSL")
        assert code == 2 and said.count("\n") == 1
        assert "set ssl.cafile to its certificate (-X KEY=VALUE or --client-config sets them)" in said
