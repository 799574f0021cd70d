"""Configuration by request: descriptions with sources and synonyms, and what may be changed."""

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.describe_and_alter import (
    Alteration,
    ConfigError,
    Operation,
    Setting,
    Source,
    alter_broker,
    alter_topic,
    check_broker_configs,
    check_topic_configs,
    describe_broker,
    describe_topic,
    not_in_force,
)
from kafkalite.config.keys import Type
from kafkalite.config.stored import read_broker_config

INVALID_CONFIG, INVALID_REQUEST = 40, 42
COMPACT = {"cleanup.policy": "compact"}


def topic(config: BrokerConfig, name: str, **overrides: str) -> Setting:
    (setting,) = describe_topic(config, {key.replace("_", "."): text for key, text in overrides.items()}, [name])
    return setting


def origins(setting: Setting) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, int(synonym.source)) for synonym in setting.synonyms]


class TestDescribe:
    def test_describe_topic_with_defaults(self) -> None:
        setting = topic(BrokerConfig(), "segment.bytes")
        assert setting[:6] == ("segment.bytes", "1073741824", Source.DEFAULT, False, False, Type.INT)
        assert origins(setting) == [("log.segment.bytes", "1073741824", 5)]

    def test_config_sources_in_order_of_precedence(self) -> None:
        config = BrokerConfig(
            {"message.max.bytes": "1"}, dynamic_default={"message.max.bytes": "2"}, dynamic={"message.max.bytes": "3"}
        )
        setting = topic(config, "max.message.bytes", max_message_bytes="4")
        assert (setting.value, setting.source) == ("4", Source.TOPIC)
        assert origins(setting) == [
            ("max.message.bytes", "4", 1),
            ("message.max.bytes", "3", 2),
            ("message.max.bytes", "2", 3),
            ("message.max.bytes", "1", 4),
            ("message.max.bytes", "1048588", 5),
        ]
        assert topic(config, "max.message.bytes").source == Source.DYNAMIC_BROKER

    def test_synonyms_with_another_unit(self) -> None:
        setting = topic(BrokerConfig({"log.retention.hours": "1"}), "retention.ms")
        assert (setting.value, setting.source) == ("3600000", Source.STATIC_BROKER)
        assert origins(setting) == [("log.retention.hours", "1", 4)]
        assert topic(BrokerConfig(), "retention.ms").synonyms == ()

    def test_lists_booleans_and_numbers_as_kafka_writes_them(self) -> None:
        values = {
            setting.name: setting.value
            for setting in describe_topic(BrokerConfig(), {"cleanup.policy": "compact,delete"})
        }
        assert values["cleanup.policy"] == "compact,delete"
        assert values["preallocate"] == "false"
        assert values["min.cleanable.dirty.ratio"] == "0.5"
        assert values["leader.replication.throttled.replicas"] == ""
        assert list(values) == sorted(values)

    def test_describe_broker_configs(self) -> None:
        config = BrokerConfig({"num.partitions": "3"}, dynamic={"log.retention.ms": "5"})
        settings = {setting.name: setting for setting in describe_broker(config)}
        assert (settings["num.partitions"].value, settings["num.partitions"].read_only) == ("3", True)
        assert origins(settings["num.partitions"]) == [("num.partitions", "3", 4), ("num.partitions", "1", 5)]
        assert (
            settings["log.retention.ms"].source == Source.DYNAMIC_BROKER and not settings["log.retention.ms"].read_only
        )
        assert (settings["ssl.keystore.password"].value, settings["ssl.keystore.password"].sensitive) == (None, True)
        assert settings["broker.rack"].value is None and settings["broker.rack"].source == Source.DEFAULT

    def test_describe_only_requested_keys(self) -> None:
        names = ["retention.ms", "no.such.key", "retention.ms"]
        assert [setting.name for setting in describe_topic(BrokerConfig(), {}, names)] == ["retention.ms"]
        assert describe_broker(BrokerConfig(), []) == []


class TestTopic:
    def test_valid_topic_configs_are_stored_unchanged(self) -> None:
        assert check_topic_configs(BrokerConfig(), {"retention.ms": " 5 "}) == {"retention.ms": " 5 "}

    @pytest.mark.parametrize(
        ("configs", "words"),
        [
            ({"retention.ms": "-2"}, r"Invalid value -2 for configuration retention\.ms"),
            ({"my.own": "1"}, r"Unknown topic config name: my\.own$"),
            ({"retention.m": "1"}, r"Unknown topic config name: retention\.m; did you mean retention\.ms\?"),
            ({"retention.ms": None}, r"Null value not supported for topic configs: retention\.ms"),
            ({"log.retention.ms": "1"}, "Unknown topic config name"),
            ({"remote.storage.enable": "true"}, "not supported"),
        ],
    )
    def test_invalid_topic_configs_are_rejected(self, configs: dict[str, str | None], words: str) -> None:
        with pytest.raises(ConfigError, match=words) as caught:
            check_topic_configs(BrokerConfig(), configs)
        assert caught.value.code == INVALID_CONFIG

    @pytest.mark.parametrize(
        ("current", "alteration", "expected"),
        [
            ({}, Alteration("retention.ms", Operation.SET, "1"), {"retention.ms": "1"}),
            ({"retention.ms": "1"}, Alteration("retention.ms", Operation.SET, "2"), {"retention.ms": "2"}),
            ({"retention.ms": "1"}, Alteration("retention.ms", Operation.DELETE, None), {}),
            ({}, Alteration("retention.ms", Operation.DELETE, None), {}),
            ({}, Alteration("cleanup.policy", Operation.APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
            (COMPACT, Alteration("cleanup.policy", Operation.APPEND, "compact"), COMPACT),
            ({"cleanup.policy": "compact,delete"}, Alteration("cleanup.policy", Operation.SUBTRACT, "delete"), COMPACT),
            ({}, Alteration("cleanup.policy", Operation.SUBTRACT, "delete"), {"cleanup.policy": ""}),
        ],
    )  # fmt: skip
    def test_incremental_operations(
        self, current: dict[str, str], alteration: Alteration, expected: dict[str, str]
    ) -> None:
        before = dict(current)
        assert alter_topic(BrokerConfig(), current, [alteration]) == expected
        assert current == before

    def test_several_operations_keep_other_configs(self) -> None:
        current = {"retention.ms": "1", "segment.ms": "2", "flush.ms": "3"}
        alterations = [Alteration("retention.ms", 1, None), Alteration("segment.ms", 0, "5")]
        assert alter_topic(BrokerConfig(), current, alterations) == {"segment.ms": "5", "flush.ms": "3"}

    @pytest.mark.parametrize(
        ("alterations", "code", "words"),
        [
            ([Alteration("retention.ms", 0, "x")], INVALID_CONFIG, "Not a number of type LONG"),
            ([Alteration("retention.ms", 2, "1")], INVALID_CONFIG, "Can't APPEND to key retention.ms because"),
            ([Alteration("cleanup.policy", 2, "erase")], INVALID_CONFIG, "allowed is"),
            ([Alteration("nope", 1, None)], INVALID_CONFIG, "Unknown topic config name: nope"),
            ([Alteration("retention.ms", 0, None)], INVALID_REQUEST, "Null value not supported for : retention.ms"),
            ([Alteration("retention.ms", 9, "1")], INVALID_REQUEST, "Unknown operation 9"),
            ([Alteration("retention.ms", 0, "1"), Alteration("retention.ms", 1, None)], INVALID_REQUEST,
             "Error due to duplicate config keys : retention.ms"),
        ],
    )  # fmt: skip
    def test_invalid_operations_are_rejected(self, alterations: list[Alteration], code: int, words: str) -> None:
        with pytest.raises(ConfigError) as caught:
            alter_topic(BrokerConfig(), {}, alterations)
        assert caught.value.code == code and words in str(caught.value)


class TestBroker:
    def test_dynamic_broker_keys_can_change(self) -> None:
        config = BrokerConfig(dynamic={"message.max.bytes": "7"})
        changed = alter_broker(
            config,
            {"message.max.bytes": "7"},
            [Alteration("max.connections", 0, "5"), Alteration("log.cleanup.policy", 2, "compact")],
            all_brokers=False,
        )
        assert changed == {"message.max.bytes": "7", "max.connections": "5", "log.cleanup.policy": "delete,compact"}
        assert alter_broker(config, {}, [Alteration("log.retention.ms", 0, "1")], all_brokers=True) == {
            "log.retention.ms": "1"
        }
        assert check_broker_configs(config, {"log.retention.ms": "1"}, {}, all_brokers=False) == {
            "log.retention.ms": "1"
        }

    @pytest.mark.parametrize(
        "name",
        [
            "broker.id",
            "log.dirs",
            "num.partitions",
            "no.such",
            "listener.name.x.broker.id",
            "listener.name..ssl.protocol",
        ],
    )
    def test_static_broker_keys_cannot_change(self, name: str) -> None:
        for change in (
            lambda: alter_broker(BrokerConfig(), {}, [Alteration(name, 0, "1")], all_brokers=False),
            lambda: check_broker_configs(BrokerConfig(), {name: "1"}, {}, all_brokers=True),
        ):
            with pytest.raises(ConfigError, match="Cannot update these configs dynamically") as caught:
                change()
            assert caught.value.code == INVALID_REQUEST and "Set(" not in str(caught.value)

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("log.dirs", "it is read at the start: set it in the file of the broker, and start the broker again"),
            ("process.roles", "it has no effect in this version"),
            ("client.quota.callback.class", "it is not supported in this version"),
        ],
    )
    def test_error_of_a_static_key_names_the_next_step_only_where_the_start_uses_it(self, name: str, hint: str) -> None:
        with pytest.raises(ConfigError) as caught:
            alter_broker(BrokerConfig(), {}, [Alteration(name, 0, "1")], all_brokers=False)
        assert str(caught.value) == f"Cannot update these configs dynamically: {name}; {hint}"

    def test_an_unknown_broker_key_is_refused_with_the_most_similar_one(self) -> None:
        with pytest.raises(ConfigError, match=r"dynamically: log\.retention\.m; did you mean log\.retention\.ms\?"):
            alter_broker(BrokerConfig(), {}, [Alteration("log.retention.m", 0, "1")], all_brokers=False)

    @pytest.mark.parametrize("name", ["ssl.keystore.password", "ssl.truststore.location", "ssl.keystore.type"])
    def test_key_stores_are_configured_per_listener(self, name: str) -> None:
        """As in Kafka (DynamicBrokerConfig.securityConfigsWithoutListenerPrefix)."""
        with pytest.raises(ConfigError, match="only per-listener using the listener prefix") as caught:
            alter_broker(BrokerConfig(), {}, [Alteration(name, 0, "x")], all_brokers=False)
        assert caught.value.code == INVALID_REQUEST

    def test_a_key_store_of_a_listener_is_stored_without_effect(self) -> None:
        prefixed = "listener.name.internal.ssl.keystore.location"
        assert alter_broker(BrokerConfig(), {}, [Alteration(prefixed, 0, "x")], all_brokers=False) == {prefixed: "x"}

    def test_per_broker_configs_cannot_be_cluster_defaults(self) -> None:
        for name in ("listeners", "sasl.enabled.mechanisms", "listener.name.internal.ssl.keystore.password"):
            with pytest.raises(ConfigError, match="at default cluster level"):
                alter_broker(BrokerConfig(), {}, [Alteration(name, 0, "PLAINTEXT://:0")], all_brokers=True)

    def test_dynamic_security_configs_without_effect_are_stored(self) -> None:
        texts = {
            "listener.name.internal.ssl.provider": "SunJSSE",
            "listener.name.internal.num.network.threads": "7",
        }
        config = BrokerConfig()
        alterations = [Alteration(name, 0, text) for name, text in texts.items()]
        assert alter_broker(config, {}, alterations, all_brokers=False) == texts
        changed = BrokerConfig({}, {}, texts)  # also what the next start reads
        said = not_in_force({}, texts)
        assert said == [f"{name} is stored and has no effect in this version" for name in sorted(texts)]
        assert not_in_force(texts, texts) == []
        described = {setting.name: setting for setting in describe_broker(changed)}
        assert described["listener.name.internal.num.network.threads"].value == "7"
        assert not_in_force({}, {"listener.name.internal.ssl.keystore.location": "/keys"}) == []

    @pytest.mark.parametrize(
        "name",
        [
            "listener.name.sasl_ssl.plain.sasl.jaas.config",
            "listener.name.internal.ssl.keystore.password",
            "listener.name.internal.ssl.keystore.key",
            "listener.name.internal.ssl.truststore.certificates",
            "sasl.jaas.config",
        ],
    )
    def test_passwords_are_refused_and_never_shown(self, name: str) -> None:
        """They have no effect, and would be stored in clear text."""
        for change in (
            lambda: alter_broker(BrokerConfig(), {}, [Alteration(name, 0, "hunter2")], all_brokers=False),
            lambda: check_broker_configs(BrokerConfig(), {name: "hunter2"}, {}, all_brokers=False),
        ):
            with pytest.raises(ConfigError, match="is a password") as caught:
                change()
            assert caught.value.code == INVALID_REQUEST and "hunter2" not in str(caught.value)
        stored, problems = read_broker_config(BrokerConfig(), {}, {name: "hunter2"})
        assert any(name in each and "delete it" in each for each in problems), "an earlier version has stored it"
        setting = next(each for each in describe_broker(stored) if each.name == name)
        assert (setting.value, setting.sensitive, setting.source) == (None, True, Source.DYNAMIC_BROKER)
        assert [each.value for each in setting.synonyms if each.source == Source.DYNAMIC_BROKER] == [None]
        assert "hunter2" not in repr((list(describe_broker(stored)), problems, stored))
        alterations = [Alteration(name, Operation.DELETE, None)]
        assert alter_broker(stored, {name: "hunter2"}, alterations, all_brokers=False) == {}

    def test_some_dynamic_configs_take_effect_at_the_next_start(self) -> None:
        texts = alter_broker(BrokerConfig(), {}, [Alteration("log.cleaner.threads", 0, "3")], all_brokers=True)
        assert BrokerConfig({}, texts).log_cleaner_threads == 3
        assert not_in_force({}, texts) == [
            "log.cleaner.threads is stored and takes effect with the next start of the broker"
        ]
        assert not_in_force({}, {"max.connections": "5", "log.retention.ms": "1"}) == []
        mechanisms = "listener.name.clients.sasl.enabled.mechanisms"
        assert not_in_force({}, {mechanisms: "PLAIN"}) == [
            f"{mechanisms} is stored and takes effect with the next start of the broker"
        ]

    def test_invalid_dynamic_broker_values_are_rejected(self) -> None:
        with pytest.raises(ConfigError, match="allowed is") as caught:
            alter_broker(BrokerConfig(), {}, [Alteration("max.connections", 0, "-1")], all_brokers=False)
        assert caught.value.code == INVALID_CONFIG
        with pytest.raises(ConfigError, match="Null value") as caught:
            check_broker_configs(BrokerConfig(), {"max.connections": None}, {}, all_brokers=False)
        assert caught.value.code == INVALID_REQUEST
