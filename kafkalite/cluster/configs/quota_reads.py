"""Reads the client quotas that a filter matches from the tree.

A node that cannot be read is left out and logged.
"""

import logging
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TypeAlias

from kafkalite.callbacks import FanIn, gather, once
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.configs.client_quotas import CLIENT_ID, IP, USER, QuotaEntity, QuotaFilter, values_of
from kafkalite.cluster.node_store import first_failure
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.znodes import quotas
from kafkalite.slicing import Slicer

LOGGER = logging.getLogger("kafkalite.cluster")

Found: TypeAlias = dict[QuotaEntity, dict[str, float]]
Read: TypeAlias = Callable[[Then], object]
Guarded: TypeAlias = Callable[[Callable[[list[Outcome]], object]], Callable[[list[Outcome]], object]]


class QuotaReader:
    """One read of quotas.

    Arguments:
        session: with the coordination service.
        slicer: for thousands of entities.
        wanted: which entities.
        then: called once with the outcome: the quotas by entity, or the error of the service.
        guarded: wraps the callbacks of the read; what they raise ends the request.
    """

    def __init__(
        self, session: Coordination, slicer: Slicer, wanted: QuotaFilter, *, then: Then, guarded: Guarded
    ) -> None:
        self._session = session
        self._slicer = slicer
        self._wanted = wanted
        self._then = then
        self._guarded = guarded
        self._entities: list[QuotaEntity] = []

    def start(self) -> None:
        """Read the names of users, client ids and addresses, of those that may match."""
        both, wants = self._wanted.wants(USER, CLIENT_ID), self._wanted.wants
        names = [
            self._names(USER, znodes.USER_CONFIGS, needed=both or wants(USER)),
            self._names(CLIENT_ID, znodes.CLIENT_CONFIGS, needed=wants(CLIENT_ID)),
            self._names(IP, znodes.IP_CONFIGS, needed=wants(IP)),
        ]
        gather(names, self._guarded(self._named))

    def _names(self, kind: str, path: str, *, needed: bool) -> Read:
        if not needed:
            return lambda then: then(Outcome([]))
        only = self._wanted.only(kind)
        if only is not None:
            return lambda then: then(Outcome([quotas.node_name(only[0])]))
        return lambda then: self._session.children(path, partial(listed, then))

    def _named(self, outcomes: list[Outcome]) -> None:
        if (failed := first_failure(outcomes)) is not None:
            self._then(failed)
            return
        users, clients, ips = ([quotas.name_of(node) for node in outcome.value] for outcome in outcomes)
        if self._wanted.wants(USER):
            self._entities += [QuotaEntity(((USER, user),)) for user in users]
        self._entities += [QuotaEntity(((CLIENT_ID, client),)) for client in clients]
        self._entities += [QuotaEntity(((IP, ip),)) for ip in ips]
        if not self._wanted.wants(USER, CLIENT_ID):
            self._clients_named([], [])
            return
        only = self._wanted.only(CLIENT_ID)
        if only is not None:
            self._clients_named(users, [Outcome([quotas.node_name(only[0])])] * len(users))
            return
        reads = (self._clients_of(user) for user in users)
        self._read_each(reads, len(users), partial(self._clients_named, users))

    def _clients_of(self, user: str | None) -> Read:
        path = quotas.user_clients_path(user)
        return lambda then: self._session.children(path, partial(listed, then))

    def _clients_named(self, users: list[str | None], outcomes: list[Outcome]) -> None:
        if (failed := first_failure(outcomes)) is not None:
            self._then(failed)
            return
        for user, outcome in zip(users, outcomes, strict=True):
            names = map(quotas.name_of, outcome.value)
            self._entities += [QuotaEntity(((USER, user), (CLIENT_ID, client))) for client in names]
        reads = (partial(self._session.get, entity.path) for entity in self._entities)
        self._read_each(reads, len(self._entities), self._read)

    def _read(self, outcomes: list[Outcome]) -> None:
        found: Found = {}
        for entity, outcome in zip(self._entities, outcomes, strict=True):
            if isinstance(outcome.error, NoNodeError):
                continue
            if outcome.error is not None:
                self._then(outcome)
                return
            try:
                values = values_of(quotas.decode_quotas(entity.path, outcome.value[0]))
            except znodes.ZnodeError as error:
                LOGGER.warning("%s: its quotas are left out", error)
                continue
            if values:
                found[entity] = values
        self._then(Outcome(found))

    def _read_each(self, reads: Iterable[Read], count: int, then: Callable[[list[Outcome]], object]) -> None:
        """Make reads in slices, and collect their outcomes."""
        outcomes: FanIn[Outcome] = FanIn(count, self._guarded(then))
        self._slicer.run(begun(reads, outcomes), Outcome.result)


def read_all(session: Coordination, slicer: Slicer, then: Then) -> None:
    """Read the quotas of all entities; `then` is called once with the outcome, as for `QuotaReader`."""
    ended = once(then)

    def guard(step: Callable[[list[Outcome]], object]) -> Callable[[list[Outcome]], object]:
        def call(outcomes: list[Outcome]) -> None:
            try:
                step(outcomes)
            except Exception as error:
                ended(Outcome(error=error))

        return call

    QuotaReader(session, slicer, QuotaFilter({}, strict=False), then=ended, guarded=guard).start()


def begun(reads: Iterable[Read], outcomes: FanIn[Outcome]) -> Generator[None, None, None]:
    """Begin each read."""
    for index, read in enumerate(reads):
        read(partial(outcomes.put, index))
        yield


def listed(then: Then, outcome: Outcome) -> None:
    """The names of the children of a node; none if it does not exist."""
    if isinstance(outcome.error, NoNodeError):
        then(Outcome([]))
    else:
        then(outcome if outcome.error is not None else Outcome(outcome.value[0]))
