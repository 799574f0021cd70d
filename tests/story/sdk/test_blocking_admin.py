"""The blocking administration and requests: every method of the asynchronous ones, with the same results and errors."""

import inspect
from typing import Any

import kafkalite_sdk
import pytest
from kafkalite_sdk import admin as asynchronous
from kafkalite_sdk import blocking, rpc
from kafkalite_sdk.admin.admin import Admin as AsynchronousAdmin
from kafkalite_sdk.blocking import Admin, Connection
from kafkalite_sdk.rpc import Call

from kafkalite.errors import ClientUseError, SecurityDisabledError, TopicAlreadyExistsError
from kafkalite.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.testing.thread import BrokerThread
from tests.story.sdk.blocking_rig import interrupted_behind_the_result, new_topic

PARTS = sorted(name for name in vars(AsynchronousAdmin) if not name.startswith("_") and name not in ("start", "close"))
ONLY_ASYNCHRONOUS = {
    "Consumer": {"streams"},  # iterators for tasks
}


def public(of: type) -> dict[str, Any]:
    return {name: getattr(of, name) for name in dir(of) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin", "Connection"])
def test_clients_have_the_methods_and_arguments_of_the_asynchronous_ones(name: str) -> None:
    of = rpc.Connection if name == "Connection" else getattr(kafkalite_sdk, name)
    expected, found = public(of), public(getattr(blocking, name))
    assert set(found) == set(expected) - ONLY_ASYNCHRONOUS.get(name, set())
    for method in [each for each in found if callable(expected[each])]:
        parameters = inspect.signature(expected[method]).parameters
        assert inspect.signature(found[method]).parameters == parameters, method
    constructors = [inspect.signature(each.__init__).parameters for each in (of, getattr(blocking, name))]
    assert constructors[0] == constructors[1]


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_admin_wait_for_every_coroutine_method(part: str) -> None:
    expected = type(getattr(asynchronous.Admin("a:9092"), part))
    found = type(getattr(Admin("a:9092"), part))
    methods = {name: each for name, each in public(found).items() if inspect.isfunction(each)}
    assert set(methods) == {name for name, each in public(expected).items() if inspect.iscoroutinefunction(each)}
    for name, each in methods.items():
        assert each.__doc__ == getattr(expected, name).__doc__
        assert getattr(getattr(Admin("a:9092"), part), name).__name__ == name
    assert found.__doc__ == getattr(type(asynchronous.Admin("a:9092")), part).__doc__


def test_topics_groups_and_outcomes(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker)
    with Admin(kafkalite_broker.address) as admin:
        created = admin.topics.create(f"{topic}-2", topic)
        assert isinstance(created.errors[topic], TopicAlreadyExistsError)
        assert created[f"{topic}-2"].name == f"{topic}-2"
        assert topic in [each.name for each in admin.topics.list()]
        assert admin.cluster.describe(timeout=10.0).brokers
        admin.topics.delete(f"{topic}-2").check()
        with pytest.raises(SecurityDisabledError):
            admin.acls.list()
    admin.close()
    with pytest.raises(ClientUseError, match="was closed"):
        admin.topics.list()
    with pytest.raises(ClientUseError, match="is not started"):
        Admin(kafkalite_broker.address).topics.list()


def test_requests_to_any_broker(kafkalite_broker: BrokerThread) -> None:
    topic = new_topic(kafkalite_broker, records=3)
    with Connection(kafkalite_broker.address) as connection:
        calls = [Call(DescribeLogDirsRequest(topics=None), broker=broker) for broker in connection.brokers]
        replies = connection.poll(5.0, MetadataRequest(topics=None), *calls)
        while connection.open_calls:
            replies += connection.poll(5.0)
        assert len(replies) == 1 + len(calls)
        assert all(each.result() for each in replies)
        connection.forget_coordinator(group="g")
        assert connection.offsets_before(topic, 0, -1, 10) == [3, 0]
        with pytest.raises(ValueError, match="pass broker"):
            connection.poll(1.0, DescribeLogDirsRequest(topics=None))


def test_replies_that_ctrl_c_intercepts_are_returned_again(
    kafkalite_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Connection(kafkalite_broker.address) as connection:
        with interrupted_behind_the_result(monkeypatch):
            connection.poll(60.0, MetadataRequest(topics=None))
        assert connection.open_calls == 1
        assert connection.poll(60.0)[0].result().brokers
