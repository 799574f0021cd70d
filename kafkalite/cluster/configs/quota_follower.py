"""Follows the client quotas in the tree: reads all of them, and those that other brokers have changed.

A change during a read of all quotas repeats that read: its results may be older than the change.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from kafkalite.clock import Outcome, Then
from kafkalite.cluster.configs.client_quotas import QuotaEntity, entity_of_node, values_of
from kafkalite.cluster.configs.quota_reads import read_all
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import CoordinationError
from kafkalite.slicing import Slicer

LOGGER = logging.getLogger("kafkalite.cluster")

ReadTexts = Callable[[str, Callable[[Mapping[str, str] | None], object]], object]
UntilRead = Callable[[Callable[[Then], object], Then], object]


class AppliedQuotas(Protocol):
    """The quotas of a broker."""

    def replace_all(self, found: Mapping[QuotaEntity, Mapping[str, float]]) -> None: ...
    def replace(self, entity: QuotaEntity, values: Mapping[str, float]) -> None: ...


class QuotaFollower:
    """The quotas during a session.

    Arguments:
        quotas: of the broker.
        slicer: for thousands of entities.
        session: with the coordination service.
        until_read: repeats a read while the service is out of reach.
        read_texts: reads the settings of a node; None = they cannot be read, which is logged.
    """

    def __init__(
        self,
        quotas: AppliedQuotas,
        slicer: Slicer,
        session: Coordination,
        until_read: UntilRead,
        read_texts: ReadTexts,
    ) -> None:
        self._quotas = quotas
        self._slicer = slicer
        self._session = session
        self._until_read = until_read
        self._read_texts = read_texts
        self._reading = self._again = False

    def read_all(self) -> None:
        """Read all quotas."""
        self._again = self._reading
        if not self._reading:
            self._reading = True
            self._until_read(partial(read_all, self._session, self._slicer), self._read)

    def read_changed(self, kind: str, name: str) -> None:
        """Read the quotas of a changed node: `kind` and `name` as in a notification."""
        entity = entity_of_node(kind, name)
        if entity is None:
            return
        self._again = self._reading

        def read(texts: Mapping[str, str] | None) -> None:
            if texts is not None:  # else they are unchanged
                self._quotas.replace(entity, values_of(texts))

        self._read_texts(entity.path, read)

    def _read(self, outcome: Outcome) -> None:
        self._reading = False
        if isinstance(outcome.error, CoordinationError):
            LOGGER.error("the client quotas are unchanged: %s", outcome.error)
            return
        self._quotas.replace_all(outcome.result())
        if self._again:
            self.read_all()
