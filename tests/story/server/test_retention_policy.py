"""A retention policy of an installed package runs on a broker; one that is wrong deletes nothing and is reported."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.config.retention_policies import GROUP, KEY, installed_policies
from kafkalite.errors import KafkaErrorCode
from tests.kit.server import Client, batch, running
from tests.story.server.test_retention import log_of

BATCH_BYTES = 900_000
SEGMENTS = 5
DEADLINE_S = 60.0
SETTINGS = {"log.retention.check.interval.ms": "10", "log.initial.task.delay.ms": "0"}
MODULE = """
import time

number = 3

def keep_two(segments, now_ms):
    assert all(each.size > 0 and each.largest_timestamp > 0 for each in segments[:-1])
    return max(0, len(segments) - 2)

def raises(segments, now_ms):
    raise ZeroDivisionError("planted")

def slow(segments, now_ms):
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass
    return len(segments)

def negative(segments, now_ms):
    return -1

def too_many(segments, now_ms):
    return len(segments) + 1
"""
NAMES = ("keep_two", "raises", "slow", "negative", "too_many", "number", "absent")


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs a package with policies."""
    site = tmp_path / "site"
    (info := site / "planted_policies-1.0.dist-info").mkdir(parents=True)
    (site / "planted_policies.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted-policies\nVersion: 1.0\n")
    lines = [f"{name} = planted_policies:{name}" for name in NAMES] + ["missing = planted_nothing:missing"]
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n" + "\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(site))
    installed_policies.cache_clear()
    yield
    installed_policies.cache_clear()


class Reports(logging.Handler):
    """Waits for the report of a policy."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def emit(self, record: logging.LogRecord) -> None:
        if "retention policy" in (text := record.getMessage()) and not self.text.done():
            self.text.set_result(text)


@pytest.fixture
def reports() -> Iterator[Callable[[], Reports]]:
    logger, handlers = logging.getLogger("kafkalite.server"), list[Reports]()

    def watch() -> Reports:
        handlers.append(Reports())
        logger.addHandler(handlers[-1])
        return handlers[-1]

    yield watch
    for handler in handlers:
        logger.removeHandler(handler)


async def fill(client: Client, policy: str) -> None:
    (created,) = await client.create(
        "t", segment_bytes=str(1 << 20), retention_ms="-1", file_delete_delay_ms="0", **{KEY: policy}
    )
    assert created.error_code == 0, created
    for _ in range(SEGMENTS):
        assert (await client.produce("t", batch(os.urandom(BATCH_BYTES)))).error_code == 0


async def test_policy_that_keeps_the_last_two_segments(tmp_path: Path) -> None:
    moved = asyncio.Event()
    async with running(str(tmp_path / "data"), SETTINGS) as client:
        upkeep = client.broker.logs.upkeep
        before = upkeep.on_log_start

        def on_log_start(log: object) -> None:
            before(log)  # type: ignore[arg-type]
            moved.set()

        upkeep.on_log_start = on_log_start
        await fill(client, "keep_two")
        async with asyncio.timeout(DEADLINE_S):
            while log_of(client.broker).log_start_offset < SEGMENTS - 2:
                await moved.wait()
                moved.clear()
        assert [segment.base_offset for segment in log_of(client.broker).segments] == [3, 4]
        assert (await client.offset("t", -2)).offset == SEGMENTS - 2
        assert len(await client.read("t", offset=SEGMENTS - 2)) >= 1


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("raises", "it raised ZeroDivisionError('planted')"),
        ("slow", " ms, allowed are 10 ms"),
        ("negative", "it returned -1, expected a number from 0 to"),
        ("too_many", ", expected a number from 0 to"),
        ("number", "it cannot be loaded: 3 is not callable"),
        ("absent", "it cannot be loaded: AttributeError("),
        ("missing", "it cannot be loaded: ModuleNotFoundError("),
    ],
)
async def test_wrong_policy_deletes_nothing_and_is_reported(
    tmp_path: Path, policy: str, reason: str, reports: Callable[[], Reports]
) -> None:
    report = reports()
    async with running(str(tmp_path / "data"), SETTINGS) as client:
        await fill(client, policy)
        async with asyncio.timeout(DEADLINE_S):
            text = await report.text
        assert f"t-0: the retention policy '{policy}' has deleted nothing: " in text and reason in text
        log = log_of(client.broker)
        assert log.log_start_offset == 0 and len(log.segments) == SEGMENTS


async def test_unknown_policy_is_an_invalid_config(tmp_path: Path) -> None:
    async with running(str(tmp_path / "data")) as client:
        (refused,) = await client.create("t", **{KEY: "planted_policies:keep_two"})
        assert refused.error_code == KafkaErrorCode.INVALID_CONFIG and "here absent, keep_two" in refused.error_message
