"""Tests brokers that cannot start: one line with the reason and the path, and exit code 2.

The attempt changes nothing in the directory, so that the right broker can still use it.
"""

import asyncio
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.coordination.journal import EMBEDDED_FORMAT as JOURNAL_FORMAT
from kafkalite.coordination.journal import HEADER, MAGIC
from kafkalite.server.broker import Broker, StartError
from kafkalite.server.process.resources import JOURNAL
from kafkalite.storage.dirs.log_directory import FORMAT, FORMAT_VERSION
from tests.kit.brokers import Kafkalite

TIMEOUT_S = 120
FOREIGN_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
NEXT_STEP = re.compile(r"restore it from a backup|choose another|the version of kafkalite that wrote it")

Spoil = Callable[[Path], Path]  # makes the data directory bad; answers the path that the line must name


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """The data directory of a broker that has run and ended cleanly."""
    broker = Kafkalite(tmp_path / "used", {})
    broker.start()
    assert broker.stop() == 0
    return broker.data


def refused(data: Path, *args: str) -> str:
    """The output of `serve` for this directory: one line, with exit code 2."""
    command = [sys.executable, "-m", "kafkalite", "serve", "--log-level", "error", "--listen", "127.0.0.1:0"]
    done = subprocess.run([*command, "--data", str(data), *args], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("kafkalite: "), done.stderr
    return done.stderr


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# ---- a directory that was never ours


def a_file(path: Path) -> Path:
    path.write_text("")
    return path


def below_a_file(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.with_name("file").write_text("")
    return path.with_name("file") / path.name


def a_dangling_link(path: Path) -> Path:
    path.symlink_to(path.with_name("nowhere") / "deeper")
    return path


def no_writable_directory(_path: Path) -> Path:
    return Path("/proc/kafkalite")  # no process can create a directory here, not even as root


def read_only(_path: Path) -> Path:
    return Path("/proc")  # it exists, and no process can create a file in it


def a_name_too_long(path: Path) -> Path:
    return path / ("d" * 300)


@pytest.mark.parametrize(
    "make", [a_file, below_a_file, a_dangling_link, no_writable_directory, read_only, a_name_too_long]
)
def test_log_directory_that_cannot_be_created_is_an_error(tmp_path: Path, make: Spoil) -> None:
    path = make(tmp_path / "data")
    assert str(path) in refused(path)


def test_missing_parent_of_log_directory_is_created(tmp_path: Path) -> None:
    broker = Kafkalite(tmp_path / "not" / "yet", {})
    broker.data = tmp_path / "a" / "b" / "c"
    broker.start()
    assert broker.stop() == 0
    assert (broker.data / "meta.properties").is_file()


@pytest.mark.parametrize("name", [".lock", "meta.properties", FORMAT, JOURNAL])
def test_directory_with_the_name_of_a_file_is_an_error(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    (data / name).mkdir(parents=True)
    assert str(data) in refused(data)


# ---- a directory that was ours, or is another's


def foreign_cluster(data: Path) -> Path:
    (data / "meta.properties").write_text(f"version=1\nbroker.id=1\ncluster.id={FOREIGN_CLUSTER}\n")
    return data


def foreign_broker(data: Path) -> Path:
    path = data / "meta.properties"
    path.write_text(path.read_text().replace("broker.id=1", "broker.id=77"))
    return data


def no_identity(data: Path) -> Path:
    (data / "meta.properties").write_text("version=1\n")
    return data / "meta.properties"


def rubbish_as_identity(data: Path) -> Path:
    (data / "meta.properties").write_bytes(b"\xff\xfe\x00" * 50)
    return data / "meta.properties"


def huge_broker_id(data: Path) -> Path:
    path = data / "meta.properties"
    path.write_text(path.read_text().replace("broker.id=1", "broker.id=" + "9" * 5000))
    return path


def newer_format(data: Path) -> Path:
    (data / FORMAT).write_text(f"{FORMAT_VERSION + 1}\n")
    return data


def rubbish_as_format(data: Path) -> Path:
    (data / FORMAT).write_bytes(b"\x00\xff one")
    return data / FORMAT


def no_journal(data: Path) -> Path:
    (data / JOURNAL).unlink()
    return data


def rubbish_as_journal(data: Path) -> Path:
    (data / JOURNAL).write_bytes(b"\x00\xffrubbish" * 100)
    return data / JOURNAL


def empty_journal(data: Path) -> Path:
    (data / JOURNAL).write_bytes(b"")
    return data / JOURNAL


def newer_journal(data: Path) -> Path:
    path = data / JOURNAL
    path.write_bytes(HEADER.pack(MAGIC, JOURNAL_FORMAT + 1) + path.read_bytes()[HEADER.size :])
    return path


def a_hole_in_the_journal(data: Path) -> Path:
    path = data / JOURNAL
    content = bytearray(path.read_bytes())
    content[HEADER.size + 20 : HEADER.size + 24] = struct.pack(">I", 0xDEADBEEF)
    path.write_bytes(content)
    return path


SPOILS: list[Spoil] = [
    *(foreign_cluster, foreign_broker, no_identity, rubbish_as_identity, huge_broker_id, newer_format),
    *(rubbish_as_format, no_journal, rubbish_as_journal, empty_journal, newer_journal, a_hole_in_the_journal),
]


@pytest.mark.parametrize("spoil", SPOILS)
def test_invalid_log_directory_is_reported_in_one_line_and_unchanged(used: Path, spoil: Spoil) -> None:
    path = spoil(used)
    before = contents(used)
    arguments = ("--set", "broker.id=1") if spoil is foreign_broker else ()
    said = refused(used, *arguments)
    assert str(path) in said and NEXT_STEP.search(said), said
    assert contents(used) == before


def test_log_directory_of_apache_kafka_with_other_identity_is_reported(tmp_path: Path) -> None:
    """KRaft's meta.properties: node.id instead of broker.id."""
    data = tmp_path / "data"
    data.mkdir()
    text = f"version=1\nnode.id=1\ncluster.id={FOREIGN_CLUSTER}\n"
    (data / "meta.properties").write_text(text)
    said = refused(data)
    assert str(data) in said and FOREIGN_CLUSTER in said and "kafkalite log adopt" in said
    assert (data / "meta.properties").read_text() == text


# ---- settings of groups that cannot be used


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ("offsets.topic.segment.bytes=1048575", "between 1048576 and 2147483647"),
        ("offsets.topic.compression.codec=5", "between 0 and 4"),
        ("group.consumer.migration.policy=sideways", "bidirectional, upgrade, downgrade, disabled"),
        ("group.consumer.session.timeout.ms=61000", "must not be below group.consumer.session.timeout.ms (61000)"),
    ],
)
def test_invalid_group_config_prevents_the_start(tmp_path: Path, setting: str, allowed: str) -> None:
    data = tmp_path / "data"
    said = refused(data, "--set", setting)
    assert setting.partition("=")[0] in said and allowed in said
    assert not data.exists()


# ---- an address that is in use


async def test_broker_that_cannot_bind_one_listener_opens_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with socket.create_server(("127.0.0.1", 0)) as other:
            free = other.getsockname()[1]
        settings = {
            "listeners": f"ONE://127.0.0.1:{free},TWO://127.0.0.1:{taken.getsockname()[1]}",
            "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT",
        }
        with pytest.raises(OSError, match="cannot listen on"):
            await Broker(settings=settings).start()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", free)


# ---- a directory that is in use


def test_log_directory_locked_by_another_process(tmp_path: Path) -> None:
    broker = Kafkalite(tmp_path, {})
    broker.start()
    try:
        said = refused(broker.data)
        assert str(broker.data) in said and "another broker" in said
    finally:
        assert broker.stop() == 0


async def test_log_directory_locked_by_another_broker_of_this_process(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    async with Broker(data) as first:
        second = Broker(data)
        with pytest.raises(StartError, match="another broker") as refusal:
            await second.start()
        assert data in str(refusal.value)
        assert first.address
    async with Broker(data) as third:  # the refused one has not kept or broken anything
        assert third.address
