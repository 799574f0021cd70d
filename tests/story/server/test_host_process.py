"""An embedded broker changes no process-wide state, and its errors name the wrong setting or the missing start."""

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.config.keys import ConfigError
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.server.broker import Broker
from kafkalite.testing.thread import BrokerThread
from tests.kit.members import codes, commit
from tests.kit.server import batch, running


@pytest.fixture
def tight_limit() -> Iterator[None]:
    """A soft limit of open files below the hard one, so that it could be lifted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def process_wide_state() -> dict[str, object]:
    return {
        "limits": [resource.getrlimit(each) for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)],
        "signals": [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP)],
        "logging": (logging.getLogger().level, list(logging.getLogger().handlers)),
        "kafkalite's logging": (logging.getLogger("kafkalite").level, list(logging.getLogger("kafkalite").handlers)),
        "collections": (gc.isenabled(), gc.get_threshold()),
        "directory": os.getcwd(),
        "environment": dict(os.environ),
    }


@pytest.mark.usefixtures("tight_limit")
def test_embedded_broker_leaves_limits_signals_logging_and_collector_unchanged() -> None:
    before, frozen = process_wide_state(), gc.get_freeze_count()
    with BrokerThread() as broker:
        broker.create_topic("t")
        assert process_wide_state() == before
    assert process_wide_state() == before
    assert gc.get_freeze_count() <= frozen  # frozen objects may be freed


PROCESS_WIDE = [
    *((gc, name) for name in ("disable", "enable", "freeze", "unfreeze", "set_threshold", "set_debug")),
    *((signal, name) for name in ("signal", "set_wakeup_fd", "setitimer", "siginterrupt")),
    *((os, name) for name in ("chdir", "umask", "nice", "putenv", "unsetenv", "setsid")),
    (resource, "setrlimit"),
    (sys, "setswitchinterval"),
    (threading, "stack_size"),
]


async def test_embedded_start_load_and_stop_call_nothing_that_changes_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    async with running(str(tmp_path)) as client:
        await client.create("orders", partitions=3)
        await client.produce("orders", batch(b"v"))
        await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        assert codes(await client.call(commit("g", "orders", {0: 1, 1: 1}), 8)) == [0, 0]
    for module, name in PROCESS_WIDE:
        monkeypatch.setattr(module, name, lambda *_, name=f"{module.__name__}.{name}": called.append(name))
    broker = Broker(str(tmp_path))
    await broker.start()
    coordinator = broker.running.group_coordinator
    while coordinator._runtime.machine(0) is None:
        await asyncio.sleep(0)
    await broker.stop()
    monkeypatch.undo()
    assert called == []


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_temporary_directory_exists_only_while_the_broker_runs(temporary: Path) -> None:
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


def test_address_before_the_start_raises_an_error_that_names_the_start() -> None:
    for broker in (Broker(), BrokerThread()):
        with pytest.raises(RuntimeError, match="with"):
            broker.address  # noqa: B018  (the access is the test)


def test_settings_accept_numbers_booleans_and_lists() -> None:
    settings = {"num.partitions": 3, "auto.create.topics.enable": False, "group.consumer.assignors": ["range"]}
    with BrokerThread(settings={**settings, "log.cleaner.min.cleanable.ratio": 0.25}) as thread:
        config = thread.broker.running.config
        assert (config.num_partitions, config.auto_create_topics_enable) == (3, False)
        assert config.group_consumer_assignors == ("range",)
        assert config.topic_defaults.min_cleanable_dirty_ratio == 0.25
        thread.create_topic("t", configs={"retention.ms": -1, "cleanup.policy": ["compact", "delete"]})
        configs = thread.broker.running.image.topics["t"].configs
        assert configs == {"retention.ms": "-1", "cleanup.policy": "compact,delete"}


def test_setting_of_a_wrong_type_is_rejected_by_name() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions: expected a string, a number, "):
        Broker(settings={"num.partitions": None})  # type: ignore[dict-item]


def test_directory_with_a_comma_is_refused_because_log_dirs_is_a_list() -> None:
    with pytest.raises(ConfigError, match=r"data_dir /x/\('y', 1\): a comma separates directories"):
        Broker("/x/('y', 1)")


def test_misspelt_setting_of_a_program_is_refused_with_the_nearest_key() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitons is no setting of a broker; did you mean num\.partitions\?"):
        Broker(settings={"num.partitons": "3"})
