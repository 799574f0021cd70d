"""The options of ConsumerConnector: Java's defaults, what is refused and why, and which machine they configure."""

from typing import Any

import pytest
from kafkalite_sdk.zk.consumer.connector import ConsumerConnector
from kafkalite_sdk.zk.consumer.options import ConnectorOptions, ConnectorSettings, connector_settings

from kafkalite.errors import ClientUseError


def settings(**options: Any) -> ConnectorSettings:
    return connector_settings("billing", options)  # type: ignore[arg-type]


def test_defaults_are_those_of_java() -> None:
    found = settings()
    assert found.membership._replace(subscription=None)._asdict() == {  # type: ignore[arg-type]
        "group": "billing", "consumer_id": "", "subscription": None, "strategy": "range", "round_robin_release": "1.1",
        "excludes_internal": True, "rebalance_retries": 4, "rebalance_backoff_s": 2.0, "auto_commit_interval_s": 60.0,
        "commit_retries": 5, "commit_backoff_s": 1.0, "session_timeout_s": 6.0,
    }  # fmt: skip
    assert (found.storage, found.dual_commit, found.reset, found.stream_timeout_s) == (
        "zookeeper",
        False,
        "latest",
        None,
    )
    assert (found.session_timeout_ms, found.connection_timeout_s, found.offsets_timeout_s) == (6_000, 6.0, 10.0)
    assert dict(found.fetch) == {
        "client_id": "billing", "request_timeout_ms": 30_000, "retry_backoff_ms": 200, "retry_backoff_max_ms": 1_000,
        "max_partition_fetch_bytes": 1 << 20, "fetch_min_bytes": 1, "fetch_max_wait_ms": 100,
        "auto_offset_reset": "latest",
    }  # fmt: skip


def test_defaults_that_follow_other_options() -> None:
    assert settings(offsets_storage="kafka").dual_commit
    assert settings(zookeeper_sync_time_ms=500).membership.rebalance_backoff_s == 0.5
    assert settings(zookeeper_session_timeout_ms=9_000).connection_timeout_s == 9.0
    assert settings(auto_commit_enable=False).membership.auto_commit_interval_s is None
    assert settings(consumer_timeout_ms=0).stream_timeout_s == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_consumer_fetchers": 4}, "num_consumer_fetchers is 4, but has no effect here: one event loop"),
        ({"queued_max_message_chunks": 10}, "fetched in advance are bounded in bytes"),
        ({"socket_receive_buffer_bytes": 1}, "operating system chooses"),
        ({"dual_commit_enabled": True}, 'needs offsets_storage="kafka"'),
        ({"offsets_storage": "file"}, "expected one of zookeeper, kafka"),
        ({"auto_offset_reset": "earliest"}, "expected one of smallest, largest"),
        ({"fetch_wait_max_ms": 200, "socket_timeout_ms": 100}, "expected at least fetch_wait_max_ms"),
        ({"rebalance_max_retries": 0}, "expected 1 to"),
        ({"consumer_timeout_ms": -2}, "consumer_timeout_ms is -2"),
    ],
)
def test_value_is_refused_with_its_reason(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        settings(**options)


def test_unknown_option_names_the_similar_one() -> None:
    with pytest.raises(TypeError, match="did you mean 'auto_commit_enable'"):
        settings(auto_commit_enabled=True)


def test_every_option_of_the_consumer_is_documented() -> None:
    text = ConnectorOptions.__doc__
    assert text is not None
    own = [name for name in ConnectorOptions.__annotations__ if not name.startswith(("ssl_", "sasl_", "security_"))]
    assert [name for name in own if name not in text] == []


def test_streams_need_an_open_connector() -> None:
    connector = ConsumerConnector("localhost:2181", "billing")
    with pytest.raises(ClientUseError, match="not open"):
        connector.create_message_streams({"orders": 1})
    with pytest.raises(ValueError, match="either whitelist or blacklist"):
        connector.create_message_streams_by_filter()
    with pytest.raises(ValueError, match="not the name of a topic"):
        connector.create_message_streams({"a/b": 1})
