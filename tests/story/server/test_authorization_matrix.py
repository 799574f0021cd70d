"""The authorisation matrix: each API key with each set of ACLs. Kafka's answers are data; ours are those of 4.4."""

from pathlib import Path

from tests.kit.authorization_cases import phases
from tests.kit.authorization_differences import DIFFERENCES, table
from tests.kit.authorization_matrix import difference, recorded, recorded_3_9, run
from tests.kit.authorized_broker import authorized

SETTINGS = {"broker.id": "1"}
PAGE = Path(__file__).resolve().parents[3] / "docs" / "security.md"


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


def test_different_answers_of_apache_kafka_3_9_are_explained() -> None:
    older, newer = recorded_3_9(), recorded()
    reasons = {request: each for each in DIFFERENCES for request in each.requests}
    different = difference(older, newer)
    for label, by_phase in different.items():
        for phase, facts in by_phase.items():
            reason = reasons[label.split()[0]]
            assert reason.explains(facts, newer[label][phase]), f"{label}, {phase}: {facts}, not {newer[label][phase]}"
    assert {label.split()[0] for label in different} == set(reasons), "each reason is needed"
    assert sum(map(len, older.values())) > 3_000
    assert table() in PAGE.read_text(), "the table of docs/security.md"
