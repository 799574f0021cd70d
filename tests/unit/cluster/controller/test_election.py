"""Elections: one controller per epoch, also when responses are lost and sessions expire."""

import random
from typing import Any

import pytest

from kafkalite.cluster.controller.election import Election, Term
from kafkalite.coordination.znodes.controller import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    decode_controller,
    decode_controller_epoch,
)
from tests.unit.cluster.controller.kit import Service


class Candidate:
    """A broker in the elections of a service."""

    def __init__(self, service: Service, broker_id: int) -> None:
        self.session: Any = service.connect()
        self.terms: list[Term] = []
        self.losses = 0
        self.election = Election(self.session, service.clock, broker_id, self.terms.append, self._moved)
        self.election.start()

    def _moved(self) -> None:
        self.losses += 1


def test_the_first_broker_is_elected_in_epoch_1() -> None:
    service = Service()
    first, second = Candidate(service, 1), Candidate(service, 2)
    assert first.terms == [Term(1, 1)] and second.terms == []
    assert decode_controller(service.data(CONTROLLER)).broker_id == 1
    assert decode_controller_epoch(service.data(CONTROLLER_EPOCH)) == 1


def test_another_broker_is_elected_when_the_session_of_the_controller_expires() -> None:
    service = Service()
    first, second = Candidate(service, 1), Candidate(service, 2)
    service.expire(first.session)
    assert second.terms == [Term(2, 2)] and first.election.term == Term(1, 1)
    assert decode_controller(service.data(CONTROLLER)).broker_id == 2


@pytest.mark.parametrize("executed", [True, False])
def test_an_election_without_a_response_is_read_back(executed: bool) -> None:
    service = Service()
    shaky = service.connect()
    shaky.lose, shaky.executed = 1, executed
    terms: list[Term] = []
    Election(shaky, service.clock, 1, terms.append, lambda: None).start()
    assert terms == [Term(1, 1)], "won by the first transaction, or by the second one"
    assert len(shaky.sent) == (1 if executed else 2)


def test_a_deleted_node_ends_the_term_and_begins_an_election() -> None:
    service = Service()
    first = Candidate(service, 1)
    service.delete(CONTROLLER)
    assert first.losses == 1 and first.terms == [Term(1, 1), Term(2, 2)]


def test_rejoining_deletes_the_own_node_so_that_another_broker_is_elected_or_this_one_again() -> None:
    service = Service()
    first, second = Candidate(service, 1), Candidate(service, 2)
    first.election.rejoin()
    assert len(first.terms) + len(second.terms) == 2 and first.losses == 0
    assert decode_controller_epoch(service.data(CONTROLLER_EPOCH)) == 2


def test_an_invalid_epoch_is_not_changed_and_tried_again_later() -> None:
    service = Service()
    service.write(CONTROLLER_EPOCH, b"garbage")
    first = Candidate(service, 1)
    assert first.terms == [] and service.data(CONTROLLER_EPOCH) == b"garbage"
    service.write(CONTROLLER_EPOCH, b"7")
    service.clock.advance(1_000)
    assert first.terms == [Term(8, 2)]


def test_a_closed_election_is_not_joined_again() -> None:
    service = Service()
    first, second = Candidate(service, 1), Candidate(service, 2)
    second.election.close()
    service.expire(first.session)
    assert second.terms == [] and not service.exists(CONTROLLER)


@pytest.mark.parametrize("seed", range(20))
def test_epochs_are_won_once_each_under_lost_responses_and_expired_sessions(seed: int) -> None:
    chance, service = random.Random(seed), Service()
    candidates = [Candidate(service, broker_id) for broker_id in range(4)]
    all_candidates = list(candidates)
    for _ in range(60):
        chosen = chance.randrange(len(candidates))
        candidate = candidates[chosen]
        match chance.randrange(4):
            case 0:
                service.expire(candidate.session)
                candidates[chosen] = Candidate(service, chosen)
                all_candidates.append(candidates[chosen])
            case 1:
                candidate.session.lose, candidate.session.executed = 1, chance.random() < 0.5
            case 2 if service.exists(CONTROLLER):
                service.delete(CONTROLLER)
            case _:
                service.clock.advance(500)
    epochs = [term.epoch for candidate in all_candidates for term in candidate.terms]
    assert len(epochs) == len(set(epochs)), f"seed {seed}: an epoch was won twice: {sorted(epochs)}"
    owners = [candidate for candidate in candidates if candidate.election.term is not None]
    assert len(owners) == 1 and owners[0].election.term is not None, f"seed {seed}"
    assert owners[0].election.term.epoch == decode_controller_epoch(service.data(CONTROLLER_EPOCH)), f"seed {seed}"
