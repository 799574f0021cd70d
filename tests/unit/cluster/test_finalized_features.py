"""The finalized features: levels that any broker changes are followed; unreadable ones change nothing."""

from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.finalized_features import FeatureFollower, change_levels
from kafkalite.cluster.metadata.image import FinalizedFeatures
from kafkalite.coordination.errors import BadVersionError, ConnectionLossError, SessionExpiredError
from kafkalite.coordination.tree import Stat
from kafkalite.coordination.znodes import FEATURES, ZnodeError
from kafkalite.coordination.znodes.features import decode_levels, encode_levels
from kafkalite.errors import KafkaErrorCode


class FakeSession:
    """A session with one node, whose reads may fail."""

    def __init__(self) -> None:
        self.data, self.version = b"", 0
        self.failure: BaseException | None = None
        self.watch: Any = None

    def get(self, path: str, then: Any, watch: Any = None) -> None:
        assert path == FEATURES
        self.watch = watch
        then(Outcome((self.data, self.stat())) if self.failure is None else Outcome(error=self.failure))

    def set(self, path: str, data: bytes, then: Any, version: int) -> None:
        if version != self.version:
            then(Outcome(error=BadVersionError(path)))
            return
        self.write(data)
        then(Outcome(self.stat()))

    def stat(self) -> Stat:
        return Stat(*[0] * len(Stat._fields))._replace(version=self.version)

    def write(self, data: bytes) -> None:
        self.data, self.version = data, self.version + 1


class FakeClock:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def monotonic(self) -> float:
        return 0.0

    def call_at(self, at_s: float, callback: Any, *args: Any) -> None:
        self.calls.append(callback)


def follower(session: FakeSession, clock: FakeClock | None = None) -> tuple[FinalizedFeatures, FeatureFollower]:
    features = FinalizedFeatures()
    service: Any = session
    timers: Any = clock or FakeClock()
    found = FeatureFollower(features, service, timers)
    found.start()
    return features, found


def following(session: FakeSession) -> FinalizedFeatures:
    return follower(session)[0]


def test_without_data_the_level_is_the_highest_one() -> None:
    features = following(FakeSession())
    assert (features.transaction_version, features.epoch) == (2, 0)


def test_a_level_that_another_broker_changes_is_followed() -> None:
    session = FakeSession()
    features = following(session)
    seen: list[int] = []
    features.observers.append(lambda: seen.append(features.transaction_version))
    session.write(encode_levels({"transaction.version": 1}))
    session.watch(None)
    session.write(encode_levels({"transaction.version": 9}))  # of a later version of this broker
    session.watch(None)
    assert seen == [1, 2]


def test_invalid_levels_change_nothing() -> None:
    session = FakeSession()
    session.write(encode_levels({"transaction.version": 1}))
    features = following(session)
    session.write(b'{"version":2}')
    session.watch(None)
    assert features.transaction_version == 1


def test_a_failed_read_is_repeated_and_a_lost_session_is_not() -> None:
    session, clock = FakeSession(), FakeClock()
    session.failure = ConnectionLossError(FEATURES)
    features, reader = follower(session, clock)
    assert (features.epoch, len(clock.calls)) == (-1, 1)
    session.failure = None
    clock.calls.pop()()
    assert features.epoch == 0
    session.failure = SessionExpiredError(FEATURES)
    session.watch(None)
    assert not clock.calls
    reader.close()
    session.failure = None
    session.write(encode_levels({"transaction.version": 1}))
    session.watch(None)
    assert features.transaction_version == 2


def test_a_change_after_that_of_another_controller_is_refused() -> None:
    session = FakeSession()
    features = following(session)
    session.write(encode_levels({"transaction.version": 0}))
    service: Any = session
    errors: list[int] = []
    change_levels(features, service, {"transaction.version": 1}, errors.append)
    assert errors == [KafkaErrorCode.NOT_CONTROLLER]


@pytest.mark.parametrize("data", [b"x", b'{"version":1,"features":{"a":{"max_version_level":-1}}}', b'{"version":2}'])
def test_wrong_nodes_are_named(data: bytes) -> None:
    with pytest.raises(ZnodeError, match=FEATURES):
        decode_levels(data)
