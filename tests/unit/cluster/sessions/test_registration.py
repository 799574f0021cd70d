"""The registration of a broker: its epoch, lost responses, nodes of other sessions."""

from typing import Any

import pytest

from kafkalite.cluster.sessions.registration import Registration
from kafkalite.coordination.znodes.brokers import (
    BrokerRegistration,
    decode_registration,
    encode_registration,
    registration_path,
)
from kafkalite.model import Endpoint
from tests.unit.cluster.controller.kit import Service

WAIT_MS = 3_000
NODE = BrokerRegistration((Endpoint("PLAINTEXT", "own", 9092),), timestamp_ms=5)


class Broker:
    """A broker that registers with one session."""

    def __init__(self, service: Service, session: Any = None, node: BrokerRegistration = NODE) -> None:
        self.session = session or service.connect()
        self.epochs: list[int] = []
        self.refusals: list[str] = []
        self.registration = Registration(
            self.session, service.clock, 1, node, WAIT_MS, self.epochs.append, self.refusals.append
        )


def stat(service: Service) -> Any:
    return service.do(lambda then: service.admin.exists(registration_path(1), then))


def test_the_epoch_is_the_creation_id_of_the_ephemeral_node() -> None:
    service = Service()
    broker = Broker(service)
    broker.registration.begin()
    found = stat(service)
    assert broker.epochs == [found.czxid] and found.ephemeral_owner == broker.session.session_id
    assert decode_registration(1, service.data(registration_path(1))) == NODE


@pytest.mark.parametrize("executed", [True, False])
def test_a_lost_response_is_read_back(executed: bool) -> None:
    service = Service()
    broker = Broker(service)
    broker.session.lose, broker.session.executed = 1, executed
    broker.registration.begin()
    assert broker.epochs == [stat(service).czxid] and len(broker.session.sent) == (1 if executed else 2)


def test_the_node_of_an_earlier_process_is_waited_for() -> None:
    service = Service()
    earlier, broker = Broker(service), Broker(service)
    earlier.registration.begin()
    broker.registration.begin()
    service.clock.advance(WAIT_MS - 1)
    assert broker.epochs == [] and broker.refusals == []
    service.expire(earlier.session)
    assert broker.epochs == [stat(service).czxid] and broker.epochs != earlier.epochs
    service.clock.advance(2 * WAIT_MS)
    assert broker.refusals == []


def test_two_brokers_with_one_id_are_refused_with_the_address_of_the_other() -> None:
    service = Service()
    other = Broker(service, node=NODE._replace(endpoints=(Endpoint("PLAINTEXT", "other", 9999),)))
    broker = Broker(service)
    other.registration.begin()
    broker.registration.begin()
    service.clock.advance(WAIT_MS)
    (reason,) = broker.refusals
    assert "another broker with id 1 is alive, at PLAINTEXT://other:9999" in reason and broker.epochs == []
    service.expire(other.session)
    assert broker.epochs == [], "a refused broker registers no more"


def test_the_node_of_another_broker_with_garbage_is_refused_too() -> None:
    service = Service()
    service.write(registration_path(1), b"garbage")
    broker = Broker(service)
    broker.registration.begin()
    service.clock.advance(WAIT_MS)
    assert "at an unknown address" in broker.refusals[0] and service.data(registration_path(1)) == b"garbage"


def test_a_closed_registration_does_nothing_more() -> None:
    service = Service()
    earlier, broker = Broker(service), Broker(service)
    earlier.registration.begin()
    broker.registration.begin()
    broker.registration.close()
    service.expire(earlier.session)
    service.clock.advance(2 * WAIT_MS)
    assert (broker.epochs, broker.refusals) == ([], []) and not service.exists(registration_path(1))


def test_a_lost_session_ends_the_registration_without_an_answer() -> None:
    service = Service()
    broker = Broker(service)
    service.expire(broker.session)
    broker.registration.begin()
    service.clock.advance(2 * WAIT_MS)
    assert (broker.epochs, broker.refusals) == ([], [])


def test_the_bytes_are_those_of_kafka() -> None:
    service = Service()
    broker = Broker(service)
    broker.registration.begin()
    assert service.data(registration_path(1)) == encode_registration(NODE)
