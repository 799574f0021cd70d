"""`kafkalite.retention.policy` is the name of an installed entry point, and of nothing else."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.describe_and_alter import check_topic_configs
from kafkalite.config.keys import ConfigError
from kafkalite.config.retention_policies import GROUP, KEY, installed_policies
from kafkalite.errors import KafkaErrorCode

OFFERED = EntryPoints(
    [
        EntryPoint("keep-two", "policies:keep_two", GROUP),
        EntryPoint("twice", "policies:a", GROUP),
        EntryPoint("twice", "others:b", GROUP),
        EntryPoint("foreign", "policies:x", "another.group"),
    ]
)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: OFFERED.select(group=group))
    installed_policies.cache_clear()
    yield
    installed_policies.cache_clear()


def test_installed_policy_is_accepted() -> None:
    assert check_topic_configs(BrokerConfig(), {KEY: "keep-two"}) == {KEY: "keep-two"}
    assert BrokerConfig().check_topic_config({KEY: " keep-two "}).kafkalite_retention_policy == "keep-two"
    assert BrokerConfig().check_topic_config({KEY: ""}).kafkalite_retention_policy == ""


@pytest.mark.parametrize("name", ["keep-three", "foreign", "policies:keep_two", "os.system", "policies", "../x"])
def test_other_names_are_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="installed on the broker, here keep-two, twice, twice") as caught:
        check_topic_configs(BrokerConfig(), {KEY: name})
    assert (caught.value.key, caught.value.code) == (KEY, KafkaErrorCode.INVALID_CONFIG)


def test_name_that_two_packages_offer_is_rejected() -> None:
    with pytest.raises(ConfigError, match="several packages offer it"):
        check_topic_configs(BrokerConfig(), {KEY: "twice"})


def test_stored_name_of_a_removed_package_stops_no_other_rule() -> None:
    stored = BrokerConfig().stored_topic_config({KEY: "removed", "retention.ms": "5"})
    assert stored.config.unreadable == () and stored.config.retention_ms == 5
    assert stored.config.kafkalite_retention_policy == "" and len(stored.problems) == 1


def test_topics_without_a_policy_read_no_metadata_of_packages() -> None:
    BrokerConfig().check_topic_config({"retention.ms": "5", KEY: ""})
    assert installed_policies.cache_info().misses == 0
