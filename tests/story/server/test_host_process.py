"""A broker in somebody else's process leaves that process as it was, and says what is done wrong with it."""

import gc
import logging
import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.config.keys import ConfigError
from kafkalite.server.broker import Broker
from kafkalite.testing.thread import BrokerThread


@pytest.fixture
def tight_limit() -> Iterator[None]:
    """A soft limit of open files below the hard one, so that it could be lifted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def what_belongs_to_the_process() -> dict[str, object]:
    return {
        "limits": [resource.getrlimit(each) for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)],
        "signals": [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP)],
        "logging": (logging.getLogger().level, list(logging.getLogger().handlers)),
        "kafkalite's logging": (logging.getLogger("kafkalite").level, list(logging.getLogger("kafkalite").handlers)),
        "collections": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "directory": os.getcwd(),
        "environment": dict(os.environ),
    }


@pytest.mark.usefixtures("tight_limit")
def test_limits_signals_logging_and_collections_stay_those_of_the_host() -> None:
    before = what_belongs_to_the_process()
    with BrokerThread() as broker:
        broker.create_topic("t")
        assert what_belongs_to_the_process() == before
    assert what_belongs_to_the_process() == before


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_only_a_broker_that_runs_has_a_temporary_directory(temporary: Path) -> None:
    with pytest.raises(ConfigError):
        Broker(settings={"num.partitions": "x"})
    broker = Broker()
    await broker.stop()
    assert list(temporary.iterdir()) == []
    async with broker:
        (made,) = temporary.iterdir()
        assert made.stat().st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == []
    with pytest.raises(OSError, match="cannot listen on"):
        await Broker(settings={"listeners": "PLAINTEXT://192.0.2.1:1"}).start()
    assert list(temporary.iterdir()) == []


def test_an_address_before_the_start_is_told_to_wait() -> None:
    for broker in (Broker(), BrokerThread()):
        with pytest.raises(RuntimeError, match="with"):
            broker.address  # noqa: B018  (the access is the test)


def test_settings_may_be_numbers_booleans_and_lists() -> None:
    settings = {"num.partitions": 3, "auto.create.topics.enable": False, "group.consumer.assignors": ["range"]}
    with BrokerThread(settings={**settings, "log.cleaner.min.cleanable.ratio": 0.25}) as thread:
        config = thread.broker.running.config
        assert (config.num_partitions, config.auto_create_topics_enable) == (3, False)
        assert config.group_consumer_assignors == ("range",)
        assert config.topic_defaults.min_cleanable_dirty_ratio == 0.25
        thread.create_topic("t", configs={"retention.ms": -1, "cleanup.policy": ["compact", "delete"]})
        configs = thread.broker.running.image.topics["t"].configs
        assert configs == {"retention.ms": "-1", "cleanup.policy": "compact,delete"}


def test_a_setting_that_is_no_value_is_named() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions: expected a string, a number, "):
        Broker(settings={"num.partitions": None})  # type: ignore[dict-item]


def test_a_misspelt_setting_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with BrokerThread(settings={"num.partition": "3"}):
        assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
            "unknown key num.partition is ignored: did you mean num.partitions?"
        ]
