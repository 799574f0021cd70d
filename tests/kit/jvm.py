"""Apache Kafka from Maven Central, run as a process of its own, and Spark's connector: for tests and benchmarks.

Rules: versions stand in foreign.toml alone. Jars are fetched once into a cache directory (`.cache/` of the checkout, or
KAFKALITE_CACHE), complete or not at all. A broker listens on 127.0.0.1 only, is ready when it answers ApiVersions, and
keeps its files, configuration and log (`server.log`) in the directory it was given.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit.metadata_v1 import BODY_OF_NONE, parse
from tests.kit.ports import free_port
from tests.kit.starting import killed_on_failure

KIT = Path(__file__).parent
ROOT = KIT.parent.parent
FOREIGN = tomllib.loads((KIT / "foreign.toml").read_text())
CURRENT: str = FOREIGN["kafka"]["current"]
PREVIOUS: str = FOREIGN["kafka"]["previous"]
HOST = "127.0.0.1"
CLUSTER_ID = "a2Fma2FsaXRlLXRlc3RzMQ"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 120.0
IN_PYSPARK = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "jsr305",
    "lz4-java",
    "scala-library",
    "scala-parallel-collections_2.13",
    "slf4j-api",
    "snappy-java",
    "spark-tags_2.13",
)
# What consumers of 0.8 to 1.1 do not need; reload4j stands in for log4j.
NOT_FOR_CONSUMERS = {
    "excludeArtifactIds": "jline,netty,log4j,slf4j-log4j12,lz4,lz4-java,snappy-java,scala-reflect,scala-xml_2.11,mail",
    "excludeGroupIds": "javax.jms,com.sun.jdmk,com.sun.jmx,javax.activation,junit",
}
ZOOKEEPER_SESSION_MS = 2_000  # a killed broker can start again when its session has expired


class JvmError(Exception):
    """Java, Maven or Apache Kafka failed; the text names the command and the reason."""


def cache_directory() -> Path:
    """Directory of downloaded files: KAFKALITE_CACHE or `.cache/` of the checkout."""
    return Path(os.environ.get("KAFKALITE_CACHE", ROOT / ".cache"))


def java_missing() -> str | None:
    """The reason why nothing of this module can run, or None if it can."""
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def kafka_classpath(version: str = CURRENT) -> str:
    """The class path of Apache Kafka's server and tools; jars are downloaded on first use.

    Of versions up to 1.1 it has what consumers and tools need.

    version: one of foreign.toml. Raises JvmError if Maven fails; safe under pytest-xdist (a lock file).
    """
    if version in FOREIGN["kafka_zookeeper_era"]:
        return f"{_zookeeper_era_jars(version)}/*"
    if version not in FOREIGN["kafka_log_binding"]:
        raise JvmError(f"Apache Kafka {version} is not in foreign.toml")
    group, artifact, log_version = FOREIGN["kafka_log_binding"][version].split(":")
    properties = {"kafka.version": version, "log.group": group, "log.artifact": artifact, "log.version": log_version}
    return f"{_jars('kafka', version, properties)}/*"


def _zookeeper_era_jars(version: str) -> Path:
    group, artifact, log_version = FOREIGN["kafka_log_binding"][PREVIOUS].split(":")
    properties = {
        "kafka.version": version,
        "scala.version": FOREIGN["kafka_zookeeper_era"][version],
        "log.group": group,
        "log.artifact": artifact,
        "log.version": log_version,
        **NOT_FOR_CONSUMERS,
    }
    return _jars("zookeeper-era", version, properties)


def streams_jars(version: str = CURRENT) -> Path:
    """The directory of the jars of Kafka Streams without RocksDB; they are downloaded on first use.

    version: one of foreign.toml. Raises JvmError if Maven fails.
    """
    return _jars("streams", version, {"kafka.version": version})


def spark_connector_jars() -> list[Path]:
    """The jars of `format("kafka")` for the PySpark of foreign.toml; they are downloaded on first use.

    For `spark.jars`. PySpark contains the other jars of the connector. Raises JvmError if Maven fails.
    """
    version = FOREIGN["spark"]["pyspark"]
    directory = _jars("spark", version, {"spark.version": version, "excludeArtifactIds": ",".join(IN_PYSPARK)})
    return sorted(directory.glob("*.jar"))


def _jars(profile: str, version: str, properties: Mapping[str, str]) -> Path:
    """The directory with the jars of a profile of jars.xml."""
    directory = cache_directory().resolve() / "jars" / f"{profile}-{version}"
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with open(directory.parent / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.is_dir():
                _download(profile, properties, directory)
    return directory


def _download(profile: str, properties: Mapping[str, str], directory: Path) -> None:
    if (reason := java_missing()) is not None:
        raise JvmError(reason)
    partial = Path(tempfile.mkdtemp(dir=directory.parent))
    command = ["mvn", "-q", "-B", "-f", str(KIT / "jars.xml"), "-P", profile, "dependency:copy-dependencies",
               "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]  # fmt: skip
    done = subprocess.run(
        [*command, *(f"-D{name}={value}" for name, value in properties.items())], capture_output=True, text=True
    )
    if done.returncode != 0:
        shutil.rmtree(partial)
        raise JvmError(f"Maven could not fetch the jars {directory.name}:\n{done.stdout}{done.stderr}")
    partial.rename(directory)


def java_command(
    version: str,
    main_class: str,
    *,
    heap: str = "256m",
    log: str = "WARN",
    quick_start: bool = True,
    archive: Path | None = None,
    classes: Path | None = None,
) -> list[str]:
    """Return the start of a `java` command line.

    Arguments:
        version: of Apache Kafka, one of foreign.toml.
        main_class: or a Java source file with a class of its name, which is compiled once.
        heap: as for -Xmx.
        log: level of the log lines on stderr.
        quick_start: start with a third of the CPU time (C1 only, serial collector, classes from an archive);
            False = Java's defaults, for measurements.
        archive: of classes for a quick start; None = that of the tools.
        classes: a directory of compiled classes on the class path; None = without one.
    """
    log_file = f"-Dlog4j.configuration=file:{KIT}/log4j.properties"
    if int(version.split(".")[0]) >= 4:
        log_file = f"-Dlog4j2.configurationFile={KIT}/log4j2.properties"
    class_path = _class_path(version, classes)
    if main_class.endswith(".java"):
        class_path += f":{compiled(version, Path(main_class), classes)}"  # at the end: the archive remains valid
        main_class = Path(main_class).stem
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable"] if quick_start else []
    archive = archive or class_archive(version)
    if quick_start and archive.exists():
        options += ["-Xshare:auto", f"-XX:SharedArchiveFile={archive}"]
    return ["java", *options, f"-Xmx{heap}", f"-Dlog.level={log}", log_file, "-cp", class_path, main_class]


def _class_path(version: str, classes: Path | None) -> str:
    return ":".join([*([] if classes is None else [str(classes)]), kafka_classpath(version)])


def compiled(version: str, source: Path, classes: Path | None = None) -> Path:
    """Return the directory of the compiled classes of a Java source file; it is compiled once per content.

    A process saves the second that Java takes to compile a source file.

    Arguments:
        version: of Apache Kafka, whose jars it is compiled against.
        source: the file.
        classes: what precedes these jars; None = nothing.

    Raises JvmError with the messages of the compiler.
    """
    text = source.read_bytes()
    name = f"{source.stem}-{version}-{hashlib.sha256(text).hexdigest()[:12]}"
    directory = cache_directory().resolve() / "jars" / name
    class_path = _class_path(version, classes)
    if not directory.is_dir():
        partial = Path(tempfile.mkdtemp(dir=directory.parent))
        command = ["javac", "-J-XX:TieredStopAtLevel=1", "-nowarn", "-d", str(partial), "-cp", class_path, str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            shutil.rmtree(partial)
            raise JvmError(f"{source.name} does not compile:\n{done.stdout}{done.stderr}")
        try:
            partial.rename(directory)
        except OSError:  # another process was faster
            shutil.rmtree(partial)
    return directory


def class_archive(version: str, program: str = "kafka") -> Path:
    """Loaded classes of that version (class data sharing), written by the first tool that connects to a broker.

    That of the program `server` is written by the first server that is stopped.
    Java ignores the archive of another Java or of another class path.
    """
    return cache_directory().resolve() / "jars" / f"{program}-{version}.jsa"


def run_tool(
    version: str,
    main_class: str,
    args: Sequence[str],
    *,
    stdin: str | None = None,
    timeout: float = 120.0,
    quick_start: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command line tools and return its output and exit code.

    Arguments:
        version: of Apache Kafka, one of foreign.toml.
        main_class: of the tool, or a Java source file.
        args: of the tool.
        stdin: text for its standard input.
        timeout: in seconds; then TimeoutExpired is raised.
        quick_start: see `java_command`.
    """
    command = [*java_command(version, main_class, quick_start=quick_start), *args]
    archive = class_archive(version)
    partial = archive.with_suffix(f".{os.getpid()}")
    if quick_start and not archive.exists() and "--bootstrap-server" in args:
        command.insert(1, f"-XX:ArchiveClassesAtExit={partial}")
    try:
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout)
    finally:
        if partial.exists():
            partial.replace(archive)


def api_versions_answers(host: str, port: int, timeout: float = 1.0) -> bool:
    """True if a broker there answers ApiVersions v0 (KIP-35) without error."""
    answer = _response(host, port, struct.pack(">hhih", 18, 0, 1, 0), timeout)
    return answer[:6] == struct.pack(">ih", 1, 0)


def controller_is_known(host: str, port: int, timeout: float = 1.0) -> bool:
    """True if a broker there knows brokers and the controller. librdkafka may wait in vain for it else."""
    response = _response(host, port, struct.pack(">hhih", 3, 1, 1, 0) + BODY_OF_NONE, timeout)
    if not response:
        return False
    image = parse(response)
    return bool(image.brokers) and image.controller >= 0


def _response(host: str, port: int, request: bytes, timeout: float) -> bytes:
    """The response without its size, empty if there is none."""
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            stream = connection.makefile("rb")
            return stream.read(int.from_bytes(stream.read(4), "big"))
    except OSError:
        return b""


@dataclass
class KafkaProcess:
    """A running Apache Kafka; `stop()` ends it, as does leaving a `with` block."""

    version: str
    directory: Path
    port: int
    process: subprocess.Popen[bytes]
    start_seconds: float
    host: str = HOST
    partial_archive: Path | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def data(self) -> Path:
        """The log directory: partitions' directories stand in it."""
        return self.directory / "data"

    def stop(self) -> int:
        """Controlled shutdown; returns the exit code (143 is Java's for SIGTERM)."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS_MAX)
            if self.partial_archive is not None and self.partial_archive.exists():
                self.partial_archive.replace(class_archive(self.version, "server"))
            return code
        except subprocess.TimeoutExpired:
            self.kill()
            raise JvmError(f"Apache Kafka did not stop within {STOP_SECONDS_MAX} s:\n{self.log_tail()}") from None

    def kill(self) -> None:
        """SIGKILL; also reaps."""
        self.process.kill()
        self.process.wait()

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join((self.directory / "server.log").read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> "KafkaProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()


def start_kafka(
    version: str,
    directory: Path,
    *,
    heap: str = "1g",
    port: int = 0,
    overrides: Mapping[str, str] | None = None,
    quick_start: bool = True,
    zookeeper: str | None = None,
) -> KafkaProcess:
    """Start a single node, broker and controller in one, and wait until it answers ApiVersions.

    With ZooKeeper it waits until the broker knows the controller.

    Raises JvmError with the end of the log if it does not start.

    Arguments:
        version: of Apache Kafka, one of foreign.toml.
        directory: kept files; a second start on the same directory finds the data again.
        heap: as for -Xmx, and for -Xms unless quick_start.
        port: 0 = a free one.
        overrides: lines of server.properties.
        quick_start: see `java_command`.
        zookeeper: host:port of a ZooKeeper for a version before 4; None = KRaft mode.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    config = directory / "server.properties"
    mode = _kraft_properties(port) if zookeeper is None else _zookeeper_properties(port, zookeeper)
    config.write_text(_properties(directory, {**mode, **(overrides or {})}))
    if zookeeper is None and not (directory / "data" / "meta.properties").exists():
        format_storage(version, config)
    archive = class_archive(version, "server")
    java = java_command(version, "kafka.Kafka", heap=heap, log="INFO", quick_start=quick_start, archive=archive)
    command, partial = [*java, str(config)], None
    if quick_start and not archive.exists():
        partial = archive.with_suffix(f".{port}")
        command.insert(1, f"-XX:ArchiveClassesAtExit={partial}")
    if not quick_start:
        command[1:1] = [f"-Xms{heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
    command.insert(1, "-Djava.awt.headless=true")
    started = time.monotonic()
    with open(directory / "server.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    kafka = KafkaProcess(version, directory, port, process, 0.0, partial_archive=partial)
    with killed_on_failure(process):
        _wait_ready(kafka, started, api_versions_answers if zookeeper is None else controller_is_known)
    kafka.start_seconds = time.monotonic() - started
    return kafka


def format_storage(version: str, config: Path) -> None:
    """Write meta.properties and the bootstrap metadata as `kafka-storage format` does."""
    done = run_tool(version, "kafka.tools.StorageTool", ["format", "-t", CLUSTER_ID, "-c", str(config)])
    if done.returncode != 0:
        raise JvmError(f"storage format failed:\n{done.stdout}{done.stderr}")


def _wait_ready(kafka: KafkaProcess, started: float, is_ready: Callable[[str, int], bool]) -> None:
    # The port opens at an unknown moment without an event: try to connect, with a pause between two attempts.
    while not is_ready(HOST, kafka.port):
        with contextlib.suppress(subprocess.TimeoutExpired):
            kafka.process.wait(0.01)
            raise JvmError(f"Apache Kafka {kafka.version} ended while starting:\n{kafka.log_tail()}")
        if time.monotonic() - started > START_SECONDS_MAX:
            raise JvmError(f"Apache Kafka {kafka.version} not ready after {START_SECONDS_MAX} s:\n{kafka.log_tail()}")


def _kraft_properties(port: int) -> dict[str, str]:
    controller_port = free_port()
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


def _zookeeper_properties(port: int, zookeeper: str) -> dict[str, str]:
    return {
        "broker.id": "1",
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": str(ZOOKEEPER_SESSION_MS),
        "listeners": f"PLAINTEXT://{HOST}:{port}",
    }


def _properties(directory: Path, more: Mapping[str, str]) -> str:
    settings = {
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        **more,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())
