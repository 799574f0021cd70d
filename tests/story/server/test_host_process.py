"""A broker in somebody else's process leaves that process as it was."""

import gc
import logging
import os
import resource
import signal
from collections.abc import Iterator

import pytest

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
