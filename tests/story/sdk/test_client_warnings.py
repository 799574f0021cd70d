"""A program that uses the client prints nothing in development mode, unless it forgets to close the client."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, gc, sys
from kafkalite.errors import KafkaError
from kafkalite.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.server.broker import Broker
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.settings import ClientSettings, parse_bootstrap

async def main(directory, close):
    asyncio.get_running_loop().slow_callback_duration = 60.0  # the machine may be busy
    async with Broker(directory) as broker:
        client = ClusterClient(ClientSettings(parse_bootstrap(broker.address)))
        await client.start()
        client.use_topics(["orders"], create=True)
        (node,) = client.view.brokers
        await client.call(node, ListGroupsRequest())
        client.call(node, ListGroupsRequest(), channel="group").cancel()
        if close:
            await client.close()
        print("done")
    dead = ClusterClient(ClientSettings(parse_bootstrap("127.0.0.1:1")))
    try:
        await dead.start()
    except KafkaError:
        pass

if sys.argv[1] == "uvloop":
    import uvloop as loops
else:
    loops = asyncio
with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
    runner.run(main(sys.argv[2], sys.argv[3] == "close"))
gc.collect()
"""


def run(loop: str, directory: Path, end: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-X", "dev", "-c", PROGRAM, loop, str(directory), end]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_development_mode_prints_nothing(loop: str, tmp_path: Path) -> None:
    done = run(loop, tmp_path, "close", "-W", "error")
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_forgotten_close_is_named(tmp_path: Path) -> None:
    done = run("asyncio", tmp_path, "forget")
    assert 'ResourceWarning: unclosed client: use "async with" or await its close()' in done.stderr
