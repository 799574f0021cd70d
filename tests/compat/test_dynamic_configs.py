"""The settings of a broker that a request may change are those of Apache Kafka, by its own classes."""

import pytest

from kafkalite.config.definitions import BROKER_KEYS
from kafkalite.config.keys import Update
from tests.kit import jvm


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
def test_the_changeable_settings_are_those_of_kafka() -> None:
    program = str(jvm.KIT / "DynamicConfigs.java")
    done = jvm.run_tool(jvm.CURRENT, program, [])
    assert done.returncode == 0, done.stderr
    theirs = dict(line.split() for line in done.stdout.splitlines())
    assert len(theirs) > 90
    ours = {key.name: key.update.value for key in BROKER_KEYS.values() if key.update is not Update.READ_ONLY}
    assert ours == theirs
