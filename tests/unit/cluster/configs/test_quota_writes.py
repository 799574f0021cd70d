"""Changes of client quotas by several brokers: none is lost, also with lost responses."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.configs.client_quotas import CLIENT_ID, USER, QuotaEntity, values_of
from kafkalite.cluster.configs.quota_writes import QuotaChange
from kafkalite.coordination import znodes
from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.znodes.quotas import decode_quotas
from kafkalite.errors import KafkaErrorCode
from tests.kit.seeds import seeds_of
from tests.unit.cluster.controller.kit import Service

ALICE = QuotaEntity(((USER, "alice"),))
APP = QuotaEntity(((USER, "alice"), (CLIENT_ID, "app")))
KEYS = ("producer_byte_rate", "consumer_byte_rate")
CALLS = ("get", "children", "create", "set", "delete", "multi")


class DelayedSession:
    """A session whose calls are executed when `step` is called, in their order."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.calls: deque[Callable[[], object]] = deque()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._session, name)
        if name not in CALLS:
            return call
        return lambda *arguments, **options: self.calls.append(lambda: call(*arguments, **options))

    def step(self) -> None:
        self.calls.popleft()()


def change(session: Any, entity: QuotaEntity, **texts: str | None) -> list[Refusal | None]:
    results: list[Refusal | None] = []
    QuotaChange(session, entity, texts, notify=True, then=results.append).start()
    return results


def stored(service: Service, entity: QuotaEntity) -> dict[str, str] | None:
    found: list[Any] = []
    service.admin.get(entity.path, found.append)
    if isinstance(found[0].error, NoNodeError):
        return None
    return decode_quotas(entity.path, found[0].value[0])


def notified(service: Service) -> list[tuple[str, str]]:
    """The entities of the notifications, in their order."""
    found: list[Any] = []
    service.admin.children(znodes.CONFIG_CHANGES, found.append)
    paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in sorted(found.pop().value[0])]
    for path in paths:
        service.admin.get(path, found.append)
    return [znodes.decode_config_change(path, each.value[0]) for path, each in zip(paths, found, strict=True)]


@pytest.mark.parametrize("seed", seeds_of(60))
def test_changes_of_several_brokers_are_all_kept(seed: int) -> None:
    draw = random.Random(seed)
    service = Service()
    sessions = [DelayedSession(service.connect()) for _key in KEYS]
    expected: dict[QuotaEntity, dict[str, str]] = {ALICE: {}, APP: {}}
    running: list[list[Refusal | None]] = [[None], [None]]
    left = [12, 12]
    while any(left) or any(session.calls for session in sessions):
        at = draw.choice([at for at in (0, 1) if left[at] or sessions[at].calls])
        if sessions[at].calls:
            sessions[at].step()
            continue
        assert running[at] == [None], f"KAFKALITE_SEED={seed}"
        left[at] -= 1
        entity, text = draw.choice([ALICE, APP]), draw.choice([None, str(left[at])])
        expected[entity][KEYS[at]] = text or ""  # each broker changes its own key
        running[at] = change(sessions[at], entity, **{KEYS[at]: text})
    for entity, texts in expected.items():
        found = stored(service, entity) or {}
        assert found == {key: text for key, text in texts.items() if text}, f"KAFKALITE_SEED={seed}"


def test_each_change_notifies_the_other_brokers() -> None:
    service = Service()
    session = service.connect()
    assert change(session, ALICE, producer_byte_rate="1") == [None]
    assert change(session, APP, producer_byte_rate="1") == [None]
    assert change(session, ALICE, producer_byte_rate="1") == [None], "nothing changes"
    assert change(session, APP, producer_byte_rate=None) == [None]
    assert notified(service) == [("users", "alice"), ("users", "alice/clients/app"), ("users", "alice/clients/app")]


@pytest.mark.parametrize("text", ["2", None])
@pytest.mark.parametrize("executed", [True, False])
def test_a_change_is_read_back_after_a_lost_response(executed: bool, text: str | None) -> None:
    service = Service()
    session = service.connect()
    assert change(session, ALICE, producer_byte_rate="1") == [None]
    session.lose, session.executed = 1, executed
    (refusal,) = change(session, ALICE, producer_byte_rate=text)
    if executed:
        assert refusal is None
    else:
        assert refusal is not None and refusal.error == KafkaErrorCode.KAFKA_STORAGE_ERROR
    after = None if text is None else {"producer_byte_rate": text}
    assert stored(service, ALICE) == (after if executed else {"producer_byte_rate": "1"})


def test_a_change_that_is_always_overtaken_fails() -> None:
    service = Service()
    session, other = DelayedSession(service.connect()), service.connect()
    results = change(session, ALICE, producer_byte_rate="1")
    at = 0
    while session.calls:
        session.step()
        at += 1
        assert change(other, ALICE, consumer_byte_rate=str(at)) == [None]
    (refusal,) = results
    assert refusal is not None and refusal.error == KafkaErrorCode.REQUEST_TIMED_OUT
    assert stored(service, ALICE) == {"consumer_byte_rate": str(at)}


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "", "much"])
def test_stored_text_that_is_no_finite_number_limits_nothing(text: str) -> None:
    assert values_of({"consumer_byte_rate": text, "producer_byte_rate": "1024"}) == {"producer_byte_rate": 1024}
