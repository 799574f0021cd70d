"""The journal of the cluster's state: of another cluster, on a full disk, on a disk that cannot sync."""

import asyncio
import errno
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kafkalite.cli import serve
from kafkalite.cli.main import main
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.server.broker import Broker, StartError
from kafkalite.server.process.ports import Ports
from kafkalite.server.process.resources import JOURNAL
from kafkalite.server.process.sd_notify import Notifier
from kafkalite.storage.checkpoints import CLEAN_SHUTDOWN
from kafkalite.testing.faulty_disk import FaultyDisk
from tests.kit.running_copy import copy_running
from tests.kit.server import batch, connected, running
from tests.story.server.test_configs import SET, TOPIC, alter

STORAGE = KafkaErrorCode.KAFKA_STORAGE_ERROR


async def test_journal_of_another_cluster_is_unchanged(tmp_path: Path) -> None:
    """It is copied while its broker runs: there is a session to end, and a torn tail to cut off."""
    own, copy = tmp_path / "own", tmp_path / "copy"
    async with running(str(own)) as client:
        await client.create("t")
        copy_running(own, copy)
        cluster_id = client.broker.cluster_id
    journal, identity = copy / JOURNAL, copy / "meta.properties"
    journal.write_bytes(journal.read_bytes() + b"torn")
    identity.write_text(identity.read_text().replace(cluster_id, "another-cluster-id-123"))
    before = journal.read_bytes()
    with pytest.raises(StartError, match=f"belongs to cluster another-cluster-id-123, not {cluster_id}"):
        await Broker(str(copy)).start()
    assert journal.read_bytes() == before
    identity.write_text(identity.read_text().replace("another-cluster-id-123", cluster_id))
    async with running(str(copy)) as client:
        assert "t" in client.broker.image.topics
    assert journal.read_bytes()[: len(before)] != before, "a start that is not refused ends the session and the tail"


def broken_broker(data: Path) -> tuple[Broker, FaultyDisk]:
    disk = FaultyDisk()
    return Broker(str(data), {"log.dirs": f"{data}/a,{data}/b"}, ports=Ports(disk=disk)), disk


async def test_failed_journal_fsync_ends_service_and_restart_keeps_acknowledged_records(
    tmp_path: Path,
) -> None:
    broker, disk = broken_broker(tmp_path)
    received: list[str] = []
    broker.on_failed = received.append
    async with broker, connected(broker) as client:
        await client.create("kept", "doomed")
        for topic in ("kept", "doomed"):
            assert (await client.produce(topic, batch(b"v"))).error_code == 0
        disk.fail("sync", errno.EIO, path=JOURNAL)
        assert (await client.delete("doomed"))[0].error_code == STORAGE
        assert "the journal of the cluster's state failed" in received[0]
        for topic in ("kept", "doomed"):  # what is not served cannot be acknowledged, and so not be lost
            assert (await client.produce(topic, batch(b"v"))).error_code == STORAGE
        assert [(await client.create(name))[0].error_code for name in ("new", "newer")] == [STORAGE, STORAGE]
    again = Broker(str(tmp_path), {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"})
    async with again, connected(again) as client:
        assert await client.read("kept") == [b"v"]


async def test_journal_on_full_disk_rejects_only_the_metadata_change(tmp_path: Path) -> None:
    broker, disk = broken_broker(tmp_path)
    failures: list[str] = []
    broker.on_failed = failures.append
    async with broker, connected(broker) as client:
        await client.create("t")
        assert (await client.produce("t", batch(b"v"))).error_code == 0
        disk.fail("write", errno.ENOSPC, path=JOURNAL)
        assert (await client.create("new"))[0].error_code == STORAGE
        assert (await client.produce("t", batch(b"w"))).error_code == 0
        assert (await client.create("new"))[0].error_code == 0
        assert failures == []


async def test_broker_on_full_disk_stops_cleanly_without_closing_its_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker, disk = broken_broker(tmp_path)
    async with broker, connected(broker) as client:
        await client.create("t")
        assert (await client.produce("t", batch(b"v"))).error_code == 0
        disk.fail("write", errno.ENOSPC, path=JOURNAL, repeat=True)
    assert "cannot close the session" in caplog.text
    for directory in "ab":
        assert (tmp_path / directory / CLEAN_SHUTDOWN).exists()
    again = Broker(str(tmp_path), {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"})
    async with again, connected(again) as client:
        assert await client.read("t") == [b"v"]


async def test_failed_stop_unlocks_the_log_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(str(tmp_path))
    await broker.start()

    def broken() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(broker.running.logs, "finish_flushes", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        await broker.stop()
    async with Broker(str(tmp_path)) as again:
        assert again.address


@pytest.mark.usefixtures("collector_restored")
async def test_serve_ends_with_one_line_and_exit_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()

    class Failing(Broker):
        def __init__(self, *, config: BrokerConfig) -> None:
            super().__init__(config=config, ports=Ports(disk=disk))

        async def start(self, *args: object, **named: object) -> None:
            await super().start()
            disk.fail("sync", errno.EIO, path=JOURNAL)
            self.running.store.take_producer_ids(lambda _block: None)

    monkeypatch.setattr(serve, "Broker", Failing)
    monkeypatch.setattr(serve.signal, "signal", lambda *_: None)
    config = BrokerConfig({"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"})
    with pytest.raises(click.ClickException, match="the journal of the cluster's state failed") as ended:
        await serve.serve(config, Notifier(None), [])
    assert ended.value.exit_code == 1 and "\n" not in ended.value.message


async def warnings_of_start(data: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level("WARNING", "kafkalite"):
        async with running(str(data)):
            pass
    return [line for line in caplog.messages if JOURNAL in line]


async def test_start_reports_the_torn_end_of_the_journal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(str(tmp_path)) as client:
        await client.create("t")
    assert await warnings_of_start(tmp_path, caplog) == []
    with (tmp_path / JOURNAL).open("ab") as journal:
        journal.write(b"torn")
    (line,) = await warnings_of_start(tmp_path, caplog)
    assert line.startswith(f"{tmp_path / JOURNAL}: the last 4 bytes are an incomplete write")
    assert "restore the whole log directory" in line
    assert await warnings_of_start(tmp_path, caplog) == []


async def test_start_reports_an_older_journal_without_missing_topics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The older journal has all topics, but not the settings of today; nothing else would reveal it."""
    async with running(str(tmp_path)) as client:
        await client.create("t")
    older = (tmp_path / JOURNAL).read_bytes()
    async with running(str(tmp_path)) as client:
        assert await alter(client, TOPIC, "t", ("retention.ms", SET, "-1")) == (0, None)
    newer = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(older)
    verified = await asyncio.to_thread(CliRunner().invoke, main, ["log", "verify", str(tmp_path)])
    assert verified.exit_code == 0 and "an older copy: its last change is" in verified.stderr
    (line,) = await warnings_of_start(tmp_path, caplog)
    assert line.startswith(f"{tmp_path / JOURNAL}: an older copy") and "put the newer file back" in line
    assert verified.stderr == f"kafkalite: warning: {line}\n", "both report the same transaction"
    (tmp_path / JOURNAL).write_bytes(newer)
    assert await warnings_of_start(tmp_path, caplog) == []
