"""The audit log: logger `kafkalite.authorizer`, in the line format of Kafka's `kafka.authorizer.logger`.

Denied requests are logged at INFO, allowed ones at DEBUG. A principal has `LINES_PER_S` lines per second; the number of
further ones is logged at the end of the second, so that a client cannot fill the disk.
Source: StandardAuthorizerData.logAuditMessage.
"""

import logging
from typing import NamedTuple

from kafkalite.clock import Clock
from kafkalite.model import Principal
from kafkalite.state.authorizer.acls import (
    NAME_CHARACTERS_MAX,
    AclOperation,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from kafkalite.state.authorizer.hosts import java_address
from kafkalite.state.authorizer.interface import Decision

LOGGER = logging.getLogger("kafkalite.authorizer")
LINES_PER_S = 50
PERIOD_S = 1.0
CHARACTERS_MAX = 2_000  # of a change; names come from clients


class Action(NamedTuple):
    """What a principal wants to do.

    Arguments:
        operation: with the resource.
        resource_type: of the resource.
        name: of the resource.
        references: how often the request names the resource.
    """

    operation: AclOperation
    resource_type: AclResourceType
    name: str
    references: int = 1


class AuditLog:
    """Logs decisions.

    Arguments:
        clock: for the bound on the number of lines.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._period_end = 0.0
        self._lines: dict[Principal, int] = {}  # of this second

    def record(self, principal: Principal, host: str, request: str, action: Action, decision: Decision) -> None:
        """Log a decision, if the level of the logger and the bound of the principal allow it.

        Arguments:
            principal: of the connection.
            host: the address of the client.
            request: the name of its API key, such as `Produce`.
            action: what was asked.
            decision: of the authorizer.
        """
        level = logging.DEBUG if decision.allowed else logging.INFO
        if not LOGGER.isEnabledFor(level) or not self._counted(principal):
            return
        pattern = ResourcePattern(action.resource_type, action.name[:NAME_CHARACTERS_MAX], PatternType.LITERAL)
        fields = {
            "principal": str(principal),
            "allowed": decision.allowed,
            "operation": action.operation.name,
            "host": java_address(host),
            "resource": str(pattern),
            "request": request,
            "rule": decision.reason,
        }
        LOGGER.log(
            level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s for request = %s "
            "with resourceRefCount = %d based on rule %s",
            fields["principal"],
            "Allowed" if decision.allowed else "Denied",
            fields["operation"],
            fields["host"],
            fields["resource"],
            request,
            action.references,
            fields["rule"],
            extra={"fields": fields},
        )

    def record_change(self, principal: Principal, host: str, what: str, subject: str, text: str) -> None:
        """Log that a principal has changed what limits clients.

        Arguments:
            principal: of the connection.
            host: the address of the client.
            what: has happened, such as `created`.
            subject: `ACL`, `quota` or `user`.
            text: the ACL, or the entity and its changes; without secrets.
        """
        if not LOGGER.isEnabledFor(logging.INFO) or not self._counted(principal):
            return
        names = {"principal": str(principal), "host": java_address(host), "change": what}
        fields = {**names, subject.lower(): text[:CHARACTERS_MAX]}
        line = "Principal = %s from host = %s has %s %s %s"
        LOGGER.info(line, *names.values(), subject, text[:CHARACTERS_MAX], extra={"fields": fields})

    def _counted(self, principal: Principal) -> bool:
        """Count a line; returns whether it may be logged."""
        now = self._clock.monotonic()
        if now >= self._period_end:
            self._end_period()
            self._period_end = now + PERIOD_S
        lines = self._lines[principal] = self._lines.get(principal, 0) + 1
        if lines == LINES_PER_S + 1:
            self._clock.call_at(self._period_end, self._end_period)
        return lines <= LINES_PER_S

    def _end_period(self) -> None:
        for principal, lines in self._lines.items():
            if lines > LINES_PER_S:
                dropped = lines - LINES_PER_S
                LOGGER.info("Principal = %s: %d more decisions within a second were not logged", principal, dropped)
        self._lines.clear()
