"""What holds for single groups: made once for each configuration, and kept no longer than that."""

from collections.abc import Mapping
from typing import Any

from kafkalite.config.broker import BrokerConfig
from kafkalite.coordinators.group.settings import GroupSettings

CONFIG = BrokerConfig({"log.dirs": "nowhere"})
SESSION = "consumer.session.timeout.ms"


class Host:
    """The broker around, as far as settings look at it."""

    def __init__(self) -> None:
        self.config = CONFIG
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.tables: Any = None
        self.image: Any = None


def test_group_settings_are_cached_per_configuration() -> None:
    host = Host()
    settings = GroupSettings(host)
    host.group_configs["g"] = {SESSION: "50000"}
    made = settings.of("g")
    assert made.session_timeout_ms == 50_000 and settings.of("g") is made
    assert settings.of("other").session_timeout_ms == 45_000 and settings.of("another") is settings.of("other")
    host.group_configs["g"] = {SESSION: "55000"}
    assert settings.of("g").session_timeout_ms == 55_000
    host.config = BrokerConfig({"log.dirs": "nowhere", "group.consumer.max.session.timeout.ms": "52000"})
    assert settings.of("g").session_timeout_ms == 52_000
    del host.group_configs["g"]
    assert settings.of("g").session_timeout_ms == 45_000


def test_cache_drops_groups_without_settings() -> None:
    host = Host()
    settings = GroupSettings(host)
    host.group_configs["stays"] = {SESSION: "50000"}
    for number in range(1_000):
        host.group_configs[f"g{number}"] = {SESSION: "50000"}
        assert settings.of(f"g{number}").session_timeout_ms == settings.of("stays").session_timeout_ms == 50_000
        del host.group_configs[f"g{number}"]
    assert len(settings._made) <= 3
