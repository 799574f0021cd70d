"""A sample of the authorisation matrix, asked of a running Apache Kafka: the recorded answers are still its own.

It asks 4.4, with AGAINST=kafka-zookeeper 3.9.
"""

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.kit import jvm
from tests.kit.authorization_cases import phases
from tests.kit.authorization_matrix import recorded, recorded_3_9, run
from tests.kit.brokers import AGAINST
from tests.kit.secured_authorizer import authorizing_kafka, kafka_world
from tests.kit.seeds import chosen_seed
from tests.kit.zookeeper_authorizer import authorizing_kafka_zookeeper

PHASES = 6
CASES = 20  # of each phase
IS_OLDER = AGAINST == "kafka-zookeeper"


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
@pytest.mark.long_form
def test_recorded_answers_are_those_of_apache_kafka(tmp_path: Path) -> None:
    seed = chosen_seed()
    print(f"KAFKALITE_SEED={seed}")
    random = Random(seed)
    expected = recorded_3_9() if IS_OLDER else recorded()
    known = next(iter(expected.values()))
    wanted = random.sample([each for each in phases() if each.label in known and not each.everyone], PHASES)
    asked = {each.label: frozenset(random.sample(sorted(expected), CASES)) for each in wanted}

    async def ask(addresses: tuple[str, str]) -> None:
        async with kafka_world(*addresses) as world:
            found = await run(world, wanted, asked)
        for label, by_phase in found.items():
            assert by_phase == {phase: expected[label][phase] for phase in by_phase}, label
        assert sum(map(len, found.values())) == PHASES * CASES

    start = authorizing_kafka_zookeeper if IS_OLDER else authorizing_kafka
    with start(tmp_path) as addresses:
        asyncio.run(ask(addresses))
