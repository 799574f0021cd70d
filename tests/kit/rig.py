"""What the process rigs share: making topics, what a kill found unsynced, the judges of a stopped directory."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalite._speedups.storage.file import Disk
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.storage.checkpoints import RECOVERY_POINTS, read_offsets
from tests.kit import dump_log, jvm
from tests.kit.brokers import Kafkalite
from tests.kit.checker import Anomaly, History, Partition, ViolationError

JUDGE_S = 120.0
JUDGES: tuple[str, ...] = (jvm.CURRENT,)  # the versions of Apache Kafka that judge files


@contextmanager
def ended(broker: Kafkalite) -> Iterator[None]:
    """The broker is stopped after the block in any case; if the test fails, the end of its log is shown."""
    try:
        yield
    finally:
        if broker.running():
            broker.kill()
        print(f"the end of the broker's log:\n{broker.said()[-4000:]}")


async def create_topic(address: str, name: str, partitions: int, **configs: str) -> list[Partition]:
    """Make a topic that keeps its records for ever; configs with underscores. Answers its partitions."""
    entry = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
    settings = {"retention_ms": "-1", **configs}
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[entry(name=key.replace("_", "."), value=value) for key, value in settings.items()],
    )
    host, port = address.rsplit(":", 1)
    async with ClientConnection(host, int(port)) as peer:
        (result,) = (await peer.call(CreateTopicsRequest(topics=[topic]))).topics
    assert result.error_code == 0, result
    return [(name, index) for index in range(partitions)]


def unsynced(data: Path, history: History, partitions: Sequence[Partition]) -> list[Partition]:
    """Partitions with an acknowledged record that no checkpoint and no closed segment covers: it was never synced."""
    checkpoint_offsets = read_offsets(Disk(), str(data / RECOVERY_POINTS))
    found = []
    for partition in partitions:
        directory = data / f"{partition[0]}-{partition[1]}"
        active = max((int(log.stem) for log in directory.glob("*.log")), default=0)
        if history.highest_acknowledged(partition) >= max(checkpoint_offsets.get(partition, 0), active):
            found.append(partition)
    return found


def assert_kept(anomalies: Sequence[Anomaly]) -> None:
    """Fail with the first anomalies of each name.

    Raises:
        ViolationError: there is an anomaly.
    """
    names = sorted({anomaly.name for anomaly in anomalies})
    some = [str(one) for name in names for one in [each for each in anomalies if each.name == name][:3]]
    if anomalies:
        raise ViolationError(f"{len(anomalies)} anomalies: {', '.join(names)}\n" + "\n".join(some))


# What the tool says of every compacted log: offsets are missing, and it finds no time in a batch without records.
OF_COMPACTED = (
    re.compile(r"\d+ is followed by \d+"),
    re.compile(r"Found timestamp mismatch in .+"),
    re.compile(r"Index timestamp: \d+, log timestamp: -1"),
)


def assert_files_are_good(data: Path, partitions: Sequence[Partition], *, compacted: bool = False) -> None:
    """`kafkalite log verify` and Apache Kafka's DumpLogSegments find nothing wrong in the files of a stopped broker."""
    assert_directories_are_good({data: partitions}, compacted=compacted)


def assert_directories_are_good(
    partitions_by_directory: Mapping[Path, Sequence[Partition]], *, compacted: bool = False
) -> None:
    """The same for a broker with several log directories, each with its partitions: Java is started once for all."""
    for data in partitions_by_directory:
        command = [sys.executable, "-m", "kafkalite", "log", "verify", str(data)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=JUDGE_S)
        if done.returncode:
            raise ViolationError(done.stdout[-2000:] + done.stderr[-2000:])
    if (reason := jvm.java_missing()) is not None:
        pytest.skip(f"DumpLogSegments: {reason}")
    directories = [
        data / f"{topic}-{index}" for data, partitions in partitions_by_directory.items() for topic, index in partitions
    ]
    files = [path for each in directories for path in sorted(each.iterdir()) if path.suffix in dump_log.SUFFIXES]
    for version in JUDGES:
        report = dump_log.dump_files(files, version)
        allowed = OF_COMPACTED if compacted else ()
        problems = [line for line in report.problems if not any(words.fullmatch(line) for words in allowed)]
        if problems:
            raise ViolationError(f"{version}: {problems[:10]}")
        assert report.batches > 0
