"""Broker and topic snapshots: where values come from, contradictions, what is refused."""

import dataclasses

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.keys import ConfigError
from kafkalite.model import Endpoint
from kafkalite.server.process.listeners import limits_of, memory_bytes

HOUR_MS = 3_600_000


class TestTopicDefaults:
    @pytest.mark.parametrize(
        ("static", "retention_ms"),
        [
            ({}, 168 * HOUR_MS),
            ({"log.retention.hours": "2"}, 2 * HOUR_MS),
            ({"log.retention.hours": "2", "log.retention.minutes": "5"}, 300_000),
            ({"log.retention.hours": "2", "log.retention.minutes": "5", "log.retention.ms": "7"}, 7),
            ({"log.retention.hours": "-1"}, -1),
            ({"log.retention.ms": "-1"}, -1),
            ({"log.retention.ms": ""}, 168 * HOUR_MS),
        ],
    )
    def test_retention_of_broker_and_topic(self, static: dict[str, str], retention_ms: int) -> None:
        assert BrokerConfig(static).topic_defaults.retention_ms == retention_ms

    def test_roll_flush_and_jitter_defaults(self) -> None:
        config = BrokerConfig(
            {"log.roll.hours": "1", "log.roll.jitter.ms": "5", "log.flush.scheduler.interval.ms": "9"}
        ).topic_defaults
        assert (config.segment_ms, config.segment_jitter_ms, config.flush_ms) == (HOUR_MS, 5, 9)
        assert BrokerConfig({"log.flush.interval.ms": "3"}).topic_defaults.flush_ms == 3

    def test_topic_configs_override_broker_defaults(self) -> None:
        config = BrokerConfig({"log.segment.bytes": "2000000", "message.max.bytes": "5"})
        topic = config.check_topic_config({"segment.bytes": "3000000", "cleanup.policy": "compact,delete"})
        assert (topic.segment_bytes, topic.max_message_bytes) == (3_000_000, 5)
        assert topic.cleanup_policy == ("compact", "delete") and topic.compacted
        assert config.check_topic_config({}) is config.topic_defaults and not config.topic_defaults.compacted

    def test_contradicting_configs_are_rejected(self) -> None:
        for build in (
            lambda: BrokerConfig().check_topic_config({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}),
            lambda: BrokerConfig({"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"}),
        ):
            with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms \(5\) must not be above"):
                build()


class TestConnections:
    def test_connection_limits_per_address(self) -> None:
        config = BrokerConfig({"max.connections.per.ip.overrides": "127.0.0.1:2, [::1]:3,::2:4,localhost:5"})
        assert config.max_connections_per_ip_overrides == {"127.0.0.1": 2, "::1": 3, "::2": 4, "localhost": 5}
        assert BrokerConfig().max_connections_per_ip_overrides == {}

    @pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:", ":5", "a:-1", "a:x", f"a:{2**31}", "a:" + "9" * 5000])
    def test_invalid_connection_limits_per_address_are_rejected(self, text: str) -> None:
        with pytest.raises(ConfigError, match="expected HOST:COUNT"):
            BrokerConfig({"max.connections.per.ip.overrides": text})

    def test_request_memory_holds_at_least_one_request(self) -> None:
        allowed = {"queued.max.request.bytes": "5000", "socket.request.max.bytes": "5000"}
        assert limits_of(BrokerConfig(allowed)).all_requests_bytes_max == 5000
        with pytest.raises(ConfigError, match=r"queued\.max\.request\.bytes \(5000\) must not be below"):
            BrokerConfig({"queued.max.request.bytes": "5000"})
        default = limits_of(BrokerConfig()).all_requests_bytes_max
        assert default == memory_bytes() // 8 and 1 << 24 < default < 1 << 50

    def test_wait_of_a_followers_fetch_must_not_exceed_the_allowed_lag(self) -> None:
        assert BrokerConfig({"replica.lag.time.max.ms": "500"}).replica_lag_time_max_ms == 500
        with pytest.raises(ConfigError, match=r"replica\.lag\.time\.max\.ms \(499\) must not be below"):
            BrokerConfig({"replica.lag.time.max.ms": "499"})

    def test_connection_limits_resolve_host_names(self) -> None:
        known = BrokerConfig({"max.connections.per.ip.overrides": "localhost:5"})
        assert limits_of(known).connections_per_ip_overrides["127.0.0.1"] == 5
        with pytest.raises(ConfigError, match=r"cannot resolve 'nobody\.invalid'"):
            limits_of(BrokerConfig({"max.connections.per.ip.overrides": "nobody.invalid:5"}))


class TestBroker:
    def test_dynamic_configs_override_static_ones(self) -> None:
        static, default, own = {"message.max.bytes": "1"}, {"message.max.bytes": "2"}, {"message.max.bytes": "3"}
        assert BrokerConfig(static).topic_defaults.max_message_bytes == 1
        assert BrokerConfig(static, default).topic_defaults.max_message_bytes == 2
        config = BrokerConfig(static, default, own)
        assert config.topic_defaults.max_message_bytes == 3
        assert dataclasses.replace(config, dynamic={}).topic_defaults.max_message_bytes == 2
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.broker_id = 5  # type: ignore[misc]
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.num_partitions = 5  # type: ignore[misc]

    def test_broker_id_configs(self) -> None:
        assert BrokerConfig().broker_id == -1
        assert BrokerConfig({"broker.id": "3"}).broker_id == BrokerConfig({"node.id": "3"}).broker_id == 3
        assert BrokerConfig({"broker.id": "3", "node.id": "3"}).broker_id == 3
        for static in ({"broker.id": "3", "node.id": "4"}, {"broker.id": "-2"}):
            with pytest.raises(ConfigError, match=r"broker\.id"):
                BrokerConfig(static)

    def test_log_directory_configs(self) -> None:
        assert BrokerConfig().log_dirs == ("/tmp/kafka-logs",)
        assert BrokerConfig({"log.dir": "/a"}).log_dirs == ("/a",)
        assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ("/b", "/c")
        for nothing in ({"log.dirs": "/a,,/b"}, {"log.dirs": ""}, {"log.dirs": "", "log.dir": "/a"}, {"log.dir": ""}):
            with pytest.raises(ConfigError, match=r"log\.dirs"):
                BrokerConfig(nothing)

    def test_keys_without_effect_and_unknown_keys_are_listed(self) -> None:
        config = BrokerConfig({"num.io.threads": "4", "log.retention.hour": "3", "my.own": "1", "num.partitions": "2"})
        assert config.without_effect() == ["num.io.threads"]
        assert config.unknown() == [("log.retention.hour", "log.retention.hours"), ("my.own", None)]


class TestRefused:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("remote.log.storage.system.enable", "true"),
            ("remote.log.manager.thread.pool.size", "3"),
            ("zookeeper.ssl.trustore.location", "/t.pem"),
            ("create.topic.policy.class.name", "x.Y"),
            ("ssl.engine.factory.class", "x.Y"),
            ("listener.name.plaintext.ssl.engine.factory.class", "x.Y"),
        ],
    )
    def test_unsupported_security_configs_are_refused(self, key: str, value: str) -> None:
        with pytest.raises(ConfigError, match="is not supported, and ignoring it is unsafe") as caught:
            BrokerConfig({key: value})
        assert caught.value.key == key

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("authorizer.class.name", ""),
            ("zookeeper.connect", ""),
            ("security.inter.broker.protocol", "PLAINTEXT"),
            ("ssl.client.auth", "none"),
            ("sasl.enabled.mechanisms", "GSSAPI"),
        ],
    )
    def test_security_keys_with_default_values_are_accepted(self, key: str, value: str) -> None:
        assert BrokerConfig({key: value}).unknown() == []

    def test_two_coordination_services_are_refused(self) -> None:
        both = {"zookeeper.connect": "zk:2181", "kafkalite.coordination.directory": "/d"}
        with pytest.raises(ConfigError, match="a cluster has one of them"):
            BrokerConfig(both)
        assert BrokerConfig({"kafkalite.coordination.directory": "/d"}).coordination == "/d"
        assert BrokerConfig().coordination is None

    def test_remote_storage_of_a_topic_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"remote\.storage\.enable is not supported"):
            BrokerConfig().check_topic_config({"remote.storage.enable": "true"})
        assert BrokerConfig().check_topic_config({"remote.storage.enable": "false"}).remote_storage_enable is False


class TestListeners:
    def test_listener_syntax_of_kafka(self) -> None:
        config = BrokerConfig(
            {
                "listeners": "PLAINTEXT://:9092, internal://[::1]:0,OUT://my-host.example:19092",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:plaintext,OUT:PLAINTEXT",
                "advertised.listeners": "OUT://outside:1",
            }
        )
        assert config.listeners == (
            Endpoint("PLAINTEXT", "", 9092),
            Endpoint("INTERNAL", "::1", 0),
            Endpoint("OUT", "my-host.example", 19092),
        )
        assert str(config.listeners[1]) == "INTERNAL://[::1]:0"
        assert config.advertised_listeners == (Endpoint("OUT", "outside", 1),)

    def test_advertised_listeners_default_to_none(self) -> None:
        assert BrokerConfig().advertised_listeners == ()

    @pytest.mark.parametrize(
        ("static", "words"),
        [
            ({"listeners": ""}, "at least one listener"),
            ({"listeners": "localhost:9092"}, "is not NAME://HOST:PORT"),
            ({"listeners": "PLAINTEXT://localhost"}, "is not NAME://HOST:PORT"),
            ({"listeners": "PLAINTEXT://h:65536"}, "is not NAME://HOST:PORT"),
            ({"listeners": "PLAINTEXT://::1:9092"}, "is not NAME://HOST:PORT"),
            ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "listener names must be unique"),
            ({"listeners": "OTHER://a:1"}, "has no protocol for the listener OTHER"),
            (
                {
                    "listeners": "PLAINTEXT://b:2,SASL_SSL://a:1",
                    "listener.name.sasl_ssl.sasl.enabled.mechanisms": "GSSAPI",
                },
                "GSSAPI .* is not supported",
            ),
            (
                {
                    "listeners": "SASL_PLAINTEXT://a:1",
                    "inter.broker.listener.name": "SASL_PLAINTEXT",
                    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                    "sasl.mechanism.inter.broker.protocol": "GSSAPI",
                    "zookeeper.connect": "zk:2181",
                },
                r"GSSAPI \(Kerberos\), the default, is not supported between brokers",
            ),
            ({"listener.security.protocol.map": "A:B"}, "is not NAME:PROTOCOL"),
            (
                {"listeners": "Y://a:1,X://b:1", "listener.security.protocol.map": "Y:PLAINTEXT,X:PLAINTEXT"},
                "have the same port",
            ),
            ({"advertised.listeners": "X://a:1", "listener.security.protocol.map": "X:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
             "does not name one of the listeners"),
            ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients cannot connect to"),
            ({"advertised.listeners": "PLAINTEXT://:9092"}, "clients cannot connect to"),
        ],
    )  # fmt: skip
    def test_invalid_listeners_are_rejected(self, static: dict[str, str], words: str) -> None:
        with pytest.raises(ConfigError, match=words) as caught:
            BrokerConfig(static)
        assert caught.value.key in static and caught.value.key in str(caught.value)

    def test_ipv4_and_ipv6_may_share_a_port(self) -> None:
        static = {
            "listeners": "A://127.0.0.1:1,B://[::1]:1",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        }
        assert len(BrokerConfig(static).listeners) == 2
