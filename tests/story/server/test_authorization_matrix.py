"""The authorisation matrix: each API key with each set of ACLs. Apache Kafka's answers are data; ours are the same."""

from tests.kit.authorization_cases import phases
from tests.kit.authorization_matrix import recorded, run
from tests.kit.authorized_broker import authorized

SETTINGS = {"broker.id": "1"}


async def test_answers_are_those_of_apache_kafka() -> None:
    expected = recorded()
    async with authorized(SETTINGS) as broker:
        found = await run(broker, phases())
    wrong = [
        f"{label}, {phase}:\n  ours  {facts}\n  Kafka {expected[label][phase]}"
        for label, by_phase in found.items()
        for phase, facts in by_phase.items()
        if facts != expected[label][phase]
    ]
    assert not wrong, "\n".join(wrong[:40]) + f"\n{len(wrong)} differences"
    assert sum(map(len, found.values())) == sum(map(len, expected.values())) > 1_500
