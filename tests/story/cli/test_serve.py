"""`kafkalite serve` as a process: its output, its end, the configurations it rejects, and systemd."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from kafkalite._speedups.codec import encode_request
from kafkalite._version import VERSION
from kafkalite.protocol.messages.fetch import FetchRequest
from tests.kit.brokers import wait_until
from tests.kit.ports import free_port
from tests.story.cli.conftest import COMMAND, ENVIRON, TIMEOUT_S

READY = re.compile(r"kafkalite ready on (\S+:\d+)\n")


class Server:
    """A broker process that is ready; `log()` is what it has logged so far."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        assert process.stdout is not None
        said = process.stdout.readline()
        found = READY.fullmatch(said)
        assert found is not None, f"{said!r} is no readiness; the log:\n{self.log()}"
        self.address = found[1]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def log(self) -> str:
        return self._log.read_text()

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(sign)
        return self.process.wait(TIMEOUT_S)


Serve = Callable[..., Server]


@contextmanager
def started(log: Path, args: list[str], environ: dict[str, str], **options: object) -> Iterator[Server]:
    with log.open("a") as stderr:
        process = subprocess.Popen(
            [*COMMAND, "serve", *args],
            env={**ENVIRON, **environ},
            cwd=log.parent,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            **options,  # type: ignore[call-overload]
        )
    with process:
        try:
            yield Server(process, log)
        finally:
            process.kill()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts brokers on free ports, in `tmp_path`; what still runs at the end is killed."""
    with ExitStack() as stack:

        def start(*args: str, listen: str | None = "127.0.0.1:0", environ: dict[str, str] | None = None) -> Server:
            at = [] if listen is None else ["--listen", listen]
            return stack.enter_context(started(tmp_path / "log.txt", [*at, *args], environ or {}))

        yield start


def refused(tmp_path: Path, *args: str, environ: dict[str, str] | None = None) -> str:
    """The last line of `serve` after a failed start, with exit code 2."""
    done = subprocess.run(
        [*COMMAND, "serve", "--log-level", "error", *args],
        env={**ENVIRON, **(environ or {})},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("kafkalite: "), done.stderr
    return done.stderr.removeprefix("kafkalite: ").strip()


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_serve_starts_answers_and_shuts_down_cleanly(serve: Serve, tmp_path: Path, sign: signal.Signals) -> None:
    server = serve()
    assert server.address.startswith("127.0.0.1:")
    socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S).close()
    assert server.stop(sign) == 0
    assert server.process.stdout is not None and server.process.stdout.read() == "", "one line, and no more"
    log = server.log()
    for line in (
        f"kafkalite {VERSION} on Python",
        f"log directories: {tmp_path}/data",
        "loaded 0 partitions (clean shutdown)",
        f"listening on PLAINTEXT://{server.address}",
        f"{sign.name} received, shutting down",
        "shut down cleanly",
    ):
        assert log.count(line) == 1, log
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_serve_raises_the_open_file_limit_to_the_hard_limit(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    tight = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (soft - 1, hard))
    with started(tmp_path / "log.txt", ["--listen", "127.0.0.1:0"], {}, preexec_fn=tight) as server:
        assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def test_default_listener_is_local(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    server = serve("--set", f"listeners=PLAINTEXT://localhost:{port}", listen=None)
    assert server.address == f"localhost:{port}"
    socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S).close()
    assert "no authentication" not in server.log()


def test_listener_on_all_addresses_logs_a_warning(serve: Serve) -> None:
    log = serve(listen="0.0.0.0:0").log()
    (line,) = [line for line in log.splitlines() if "WARNING" in line]
    assert "no authentication" in line and "0.0.0.0" in line


def test_topics_and_records_are_loaded_by_the_next_start(serve: Serve, tmp_path: Path) -> None:
    first = serve()
    command = [*COMMAND, "topic", "create", "orders", "-p", "3", "-b", first.address]
    subprocess.run(command, env=ENVIRON, check=True, timeout=TIMEOUT_S)
    command = [*COMMAND, "produce", "orders", "-b", first.address]
    subprocess.run(command, input=b"one\ntwo\n", env=ENVIRON, check=True, timeout=TIMEOUT_S)
    assert first.stop() == 0
    second = serve()
    assert "loaded 3 partitions (clean shutdown)" in second.log()
    command = [*COMMAND, "consume", "orders", "-e", "-b", second.address]
    read = subprocess.run(command, env=ENVIRON, check=True, timeout=TIMEOUT_S, capture_output=True)
    assert read.stdout == b"one\ntwo\n"
    assert second.stop() == 0
    dump = [*COMMAND, "log", "dump", "--summary", str(tmp_path / "data")]
    shown = subprocess.run(dump, env=ENVIRON, check=True, timeout=TIMEOUT_S, capture_output=True, text=True)
    assert "2 records" in shown.stdout and "no defects" in shown.stdout


def test_setting_sources_have_their_order_and_deviations_are_logged(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "num.partitions=2\nnum.io.threads=8\nnum.network.threads=3\nnum.partition=9\ndefault.replication.factor=1\n"
        "listeners=PLAINTEXT://127.0.0.1:1\nlog.dirs=elsewhere\n"
    )
    environ = {"KAFKALITE_NUM_PARTITIONS": "3", "KAFKALITE_AUTO_CREATE_TOPICS_ENABLE": "false"}
    server = serve("--config", "server.properties", "--set", "num.partitions=4", "--data", "here", environ=environ)
    log = server.log()
    assert log.count("ignored settings: num.io.threads, num.network.threads") == 1
    assert "unknown key num.partition (in server.properties) is ignored: did you mean num.partitions?" in log
    assert (tmp_path / "here").is_dir() and not (tmp_path / "elsewhere").exists()
    command = [*COMMAND, "topic", "create", "orders", "-b", server.address]
    done = subprocess.run(command, env=ENVIRON, check=True, timeout=TIMEOUT_S, capture_output=True, text=True)
    assert done.stdout == "created orders with 4 partition(s)\n"
    command = [*COMMAND, "produce", "unmade", "-b", server.address]
    done = subprocess.run(command, env=ENVIRON, input="x", timeout=TIMEOUT_S, capture_output=True, text=True)
    assert done.returncode == 2 and "UNKNOWN_TOPIC_OR_PARTITION" in done.stderr


# config/server.properties of Apache Kafka 4, without its comments and with another directory; tests put their ports in.
STOCK = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def stock(**ports: int) -> str:
    text = STOCK
    for name, port in ports.items():
        text = text.replace({"broker": "9092", "controller": "9093"}[name], str(port))
    return text


def test_the_stock_configuration_of_kafka_4_starts_a_single_broker(serve: Serve, tmp_path: Path) -> None:
    broker, controller = free_port(), free_port()
    (tmp_path / "server.properties").write_text(stock(broker=broker, controller=controller))
    server = serve("--config", "server.properties", listen=None)
    assert server.port == broker
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", controller), timeout=TIMEOUT_S)
    (line,) = [line for line in server.log().splitlines() if "ignored settings" in line]
    for key in ("process.roles", "controller.listener.names", "controller.quorum.bootstrap.servers"):
        assert key in line
    command = [*COMMAND, "topic", "create", "orders", "-b", f"localhost:{broker}"]
    subprocess.run(command, env=ENVIRON, check=True, timeout=TIMEOUT_S, capture_output=True)
    assert server.stop() == 0


def test_the_stock_configuration_of_kafka_4_starts_with_listen(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(stock())
    port = free_port()
    server = serve("--config", "server.properties", listen=f"127.0.0.1:{port}")
    assert server.port == port and "CONTROLLER" not in server.log()
    (line,) = [line for line in server.log().splitlines() if "WARNING" in line]
    assert "advertised.listeners (in server.properties) is PLAINTEXT://localhost:9092, with a port other than" in line
    assert server.stop() == 0
    advertised = f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}"
    server = serve("--config", "server.properties", "--set", advertised, listen=f"127.0.0.1:{port}")
    assert server.log().count("WARNING") == 1, "the start above"


def test_a_replication_factor_above_the_number_of_brokers_is_logged_at_the_start(serve: Serve) -> None:
    (line,) = [
        line
        for line in serve("--set", "default.replication.factor=3").log().splitlines()
        if "WARNING" in line and "default.replication.factor is 3" in line
    ]
    assert "INVALID_REPLICATION_FACTOR" in line and line.endswith("set default.replication.factor=1")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("servers=localhost:9093", "servers=a:9093,b:9093,c:9093", "names 3 controllers, this version runs one"),
        ("servers=localhost:9093", "servers=other:9193", "which is not a controller listener of this process"),
        ("roles=broker,controller", "roles=broker", "process.roles does not make this process the controller"),
        ("roles=broker,controller", "roles=controller", "process.roles lacks broker"),
        ("bootstrap.servers=localhost", "voters=2@localhost", "which is not a controller listener of this process"),
    ],
)
def test_a_quorum_of_several_processes_is_refused_with_the_lines_to_drop(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    text = stock().replace(old, new)
    assert text != stock()
    (tmp_path / "server.properties").write_text(text)
    said = refused(tmp_path, "--config", "server.properties")
    assert reason in said and "to start a single broker, drop the lines: process.roles=" in said
    assert "controller.quorum." in said.partition("drop the lines")[2]


def test_the_log_in_json(serve: Serve) -> None:
    server = serve("--log-json")
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.log().splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    assert lines[-1]["message"] == "shut down cleanly"


@pytest.mark.parametrize(
    "args", [("--set", "num.partitions=many"), ("--listen", "nowhere"), ("--listen", "192.0.2.1:0")]
)
def test_a_failed_start_is_a_record_of_a_log_in_json(tmp_path: Path, args: tuple[str, ...]) -> None:
    command = [*COMMAND, "serve", "--log-json", *args]
    done = subprocess.run(command, env=ENVIRON, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    records = [json.loads(line) for line in done.stderr.splitlines()]
    assert (done.returncode, records[-1]["level"]) == (2, "critical")
    assert args[1].partition("=")[0].partition(":")[0] in records[-1]["message"]


def test_the_option_for_the_port_is_named(tmp_path: Path) -> None:
    for args in (("--port", "9093"), ("--port=9093",)):
        assert "--listen localhost:9093" in refused(tmp_path, *args)


def test_wrong_settings_are_one_error_line(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[log\n")
    (tmp_path / "project.toml").write_text('[project]\nname = "x"\na = 1\nb = 2\nc = 3\n')
    (tmp_path / "one.toml").write_text("key = 1\n")
    for args, text in (
        (("--set", "num.partitions=many"), "num.partitions"),
        (("--set", "num.partitions"), "key=value"),
        (("--listen", "9092"), "write HOST:PORT"),
        (("--listen", "localhost:70000"), "port"),
        (("--listen", ":0", "--set", "listeners=PLAINTEXT://:0"), "give one of them"),
        (("--set", "authorizer.class.name=org.example.Authorizer"), "authorizer.class.name"),
        (("--config", "nowhere.properties"), "nowhere.properties"),
        (("--config", "bad.toml"), "bad.toml: not TOML"),
        (("--config", "/bin/ls"), "/bin/ls: not a configuration file: it contains a NUL byte"),
        (
            ("--config", "project.toml"),
            "project.toml: no setting of a broker among its 4 keys: project.name, project.a,",
        ),
        (("--config", "one.toml"), "one.toml: its only key, key, is no setting of a broker"),
        (("--log-level", "loud"), "'loud' is not one of"),
        (("extra",), "unexpected extra argument (extra). See kafkalite serve --help."),
        (("--listen", "127.0.0.1:0", "--data", ""), "log.dirs: a directory name is empty (in --data)"),
        (("--listen", "127.0.0.1:0", "--data", "a,b"), "--data a,b: a comma separates directories; give one, or"),
        (("--listen", "127.0.0.1:0", "--set", "log.dirs="), "log.dirs: a directory name is empty (in --set)"),
    ):
        assert text in refused(tmp_path, *args), args
    said = refused(tmp_path, environ={"KAFKALITE_LOG_RETENTION_MS": "soon"})
    assert "log.retention.ms" in said and "KAFKALITE_LOG_RETENTION_MS" in said


def test_port_in_use_is_one_error_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused(tmp_path, "--listen", address)
    assert said.count(address) == 1 and "in use" in said


def test_foreign_address_is_one_error_line(tmp_path: Path) -> None:
    for address in ("192.0.2.1:9092", "nohost.invalid:9092"):
        said = refused(tmp_path, "--listen", address)
        assert said.count(address) == said.count("cannot listen on") == 1 and "--listen HOST:PORT" in said


def test_directory_of_another_broker_is_one_error_line(serve: Serve, tmp_path: Path) -> None:
    serve()
    said = refused(tmp_path, "--listen", "127.0.0.1:0")
    assert str(Path("data")) in said


def test_unusable_directory_is_one_error_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory, reason in (("file", "there is a file"), ("file/below", "Not a directory")):
        said = refused(tmp_path, "--listen", "127.0.0.1:0", "--data", directory)
        assert directory in said and reason in said
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\n")
    assert "foreign" in refused(tmp_path, "--listen", "127.0.0.1:0", "--data", "foreign")


def test_broker_under_nohup_ignores_sighup(tmp_path: Path) -> None:
    nohup = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    with started(tmp_path / "log.txt", ["--listen", "127.0.0.1:0"], {}, preexec_fn=nohup) as server:
        server.process.send_signal(signal.SIGHUP)
        assert server.stop() == 0
        assert "SIGTERM received" in server.log() and "SIGHUP" not in server.log()


def test_second_signal_exits_immediately(serve: Serve) -> None:
    """While the first still waits for a client that does not take its answer."""
    server = serve()
    produce = [*COMMAND, "produce", "large", "-b", server.address]
    lines = (b"x" * 1000 + b"\n") * 20_000
    subprocess.run(produce, input=lines, env=ENVIRON, check=True, timeout=TIMEOUT_S)
    topic = FetchRequest.FetchTopic
    asked = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**30)
    request = FetchRequest(
        max_bytes=2**30, max_wait_ms=0, min_bytes=0, topics=[topic(topic="large", partitions=[asked])]
    )
    frame = encode_request(request, 4, 1, None)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(TIMEOUT_S)
        client.connect(("127.0.0.1", server.port))
        client.sendall(len(frame).to_bytes(4, "big") + frame)
        assert client.recv(4, socket.MSG_PEEK), "the answer has begun"
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "send it again to exit immediately" in server.log(), "the first signal is logged")
        wait_until(lambda: default_action(server.process.pid, signal.SIGTERM), "the second signal is another request")
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(TIMEOUT_S) == -signal.SIGTERM
    assert "shut down cleanly" not in server.log()


def default_action(pid: int, sign: signal.Signals) -> bool:
    """Whether the process neither catches nor ignores the signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    masks = [int(found, 16) for found in re.findall(r"^Sig(?:Cgt|Ign):\s*(\w+)$", status, re.MULTILINE)]
    assert len(masks) == 2
    return not any(mask >> (sign - 1) & 1 for mask in masks)


@pytest.fixture
def notifications(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's end of NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT_S)
        yield manager


def test_service_manager_is_notified(serve: Serve, tmp_path: Path, notifications: socket.socket) -> None:
    """A whole broker on a played notify socket: ready, the watchdog from its loop, the end."""
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000"}
    server = serve(environ=environ)
    ready = notifications.recv(4096).decode().splitlines()
    assert ready == ["READY=1", f"STATUS=accepting on {server.address}"]
    assert [notifications.recv(4096) for _ in range(5)] == [b"WATCHDOG=1"] * 5
    server.process.send_signal(signal.SIGSTOP)
    notifications.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            notifications.recv(4096)
    notifications.settimeout(TIMEOUT_S)
    server.process.send_signal(signal.SIGCONT)
    assert notifications.recv(4096) == b"WATCHDOG=1"
    server.process.send_signal(signal.SIGTERM)
    while (said := notifications.recv(4096)) == b"WATCHDOG=1":
        continue
    assert said.startswith(b"STOPPING=1\n")
    assert server.process.wait(TIMEOUT_S) == 0


def test_unreachable_service_manager_is_one_error_line(tmp_path: Path) -> None:
    assert "NOTIFY_SOCKET" in refused(tmp_path, environ={"NOTIFY_SOCKET": "nonsense"})
    assert refused(tmp_path, environ={"NOTIFY_SOCKET": str(tmp_path / "nowhere")})


# Puts its socket at descriptor 3 and its own process id into LISTEN_PID, as a service manager does before it executes.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_a_socket_of_the_service_manager_is_served(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with socket.create_server(("127.0.0.1", 0)) as listening, log.open("w") as stderr:
        port = listening.getsockname()[1]
        early = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)  # before the broker is there
        command = [COMMAND[0], "-c", HAND_OVER, str(listening.fileno()), *COMMAND, "serve"]
        process = subprocess.Popen(
            command,
            env=ENVIRON,
            cwd=tmp_path,
            pass_fds=[listening.fileno()],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process, early:
        try:
            server = Server(process, log)
            assert server.port == port
            # ApiVersions v0, correlation id 7, no client id.
            early.sendall(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))
            assert early.recv(8)[4:] == (7).to_bytes(4, "big")
            early.close()
            assert server.stop() == 0
        finally:
            process.kill()


def test_the_time_until_it_is_ready_is_reported(serve: Serve, record_property: Callable[[str, object], None]) -> None:
    """The figure is reported; that it is up at all is what `serve` sees."""
    before = os.times().elapsed
    serve()
    took_s = os.times().elapsed - before
    record_property("summary", f"serve: ready after {took_s * 1000:.0f} ms")
