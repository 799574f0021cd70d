"""A broker process with few file descriptors: connections are refused before its logs lack any."""

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.server.process.descriptors import descriptors_of
from tests.kit.brokers import READY, wait_until
from tests.kit.fuzzing import BlockingClient

LIMIT = 128
RESERVE = descriptors_of(LIMIT)
LIMITED = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT})); "
SERVE = "runpy.run_module('kafkalite', run_name='__main__', alter_sys=True)"


def test_connections_are_refused_before_the_logs_lack_descriptors(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED + SERVE]
    arguments = ["serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    errors = tmp_path / "errors"
    with (
        errors.open("wb") as log,
        subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=log, text=True) as broker,
    ):
        try:
            line = next(line for line in broker.stdout or () if READY in line)
            port = int(line.rsplit(":", 1)[1].split()[0])
            with BlockingClient(port) as first, ExitStack() as stack:
                for _ in range(2 * LIMIT):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                with BlockingClient(port) as refused:
                    assert refused.receive() is None
                assert len(os.listdir(f"/proc/{broker.pid}/fd")) <= LIMIT - RESERVE.reserved
                topics = [CreateTopicsRequest.CreatableTopic(name="t", num_partitions=3, replication_factor=1)]
                answer = first.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
                assert [topic.error_code for topic in answer.topics] == [0]
            wait_until(lambda: len(os.listdir(f"/proc/{broker.pid}/fd")) < LIMIT // 2, "connections are closed")
            with BlockingClient(port) as client:
                assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        finally:
            broker.terminate()
    assert broker.returncode == 0
    said = errors.read_text()
    assert said.count("file descriptors: limit 128, 32 kept for logs") == 1
    assert said.count("file descriptors are open, the rest up to RLIMIT_NOFILE is kept for logs") == 1
    assert "Too many open files" not in said
