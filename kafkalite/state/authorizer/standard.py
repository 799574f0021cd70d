"""Kafka's rules over ACLs: `StandardAuthorizer`.

1. A super user may do everything.
2. An ACL that denies wins over each that allows. ACLs apply by literal name, by prefix and by `*`, to `User:*`, and to
   all hosts (`*`) or to one address, which may be written as Java does or in its short form.
3. An allowed Read, Write, Delete or Alter allows Describe, an allowed AlterConfigs allows DescribeConfigs. ALL is each
   operation.
4. Without an applicable ACL, `allow.everyone.if.no.acl.found` decides, if the resource has no ACL at all; else the
   request is denied.
5. A pattern whose ACLs cannot be read denies its resources: it may have denied them.

Source: StandardAuthorizerData.java, which AclAuthorizer.scala of Kafka 3.9 equals in 1 to 4.
"""

from collections.abc import Collection, Iterable, Iterator

from kafkalite.model import Principal
from kafkalite.state.authorizer.acls import (
    ALL_ACLS,
    NAME_CHARACTERS_MAX,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    PermissionType,
    ResourcePattern,
    parse_principal,
)
from kafkalite.state.authorizer.hosts import java_address
from kafkalite.state.authorizer.interface import DEFAULT_ALLOW, DEFAULT_DENY, INVALID_ACLS, SUPER_USER, Decision
from kafkalite.state.authorizer.patterns import PatternTable
from kafkalite.state.authorizer.rights import ALLOWING_MASK, DENYING_MASK, Rights, allows_some

KEPT_DECISIONS_MAX = 50_000  # of one version; some 200 bytes each

Question = tuple[AclOperation, AclResourceType, str | None]


class StandardAuthorizer:
    """Decides by ACLs, which are replaced pattern by pattern.

    Decisions are kept until the next change. Their cost otherwise depends on the number of prefix lengths among the
    ACLs of the principal, not on the number of ACLs.

    Arguments:
        super_users: may do everything.
        allow_everyone: `allow.everyone.if.no.acl.found`.
    """

    def __init__(self, super_users: Iterable[Principal] = (), *, allow_everyone: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.allow_everyone = allow_everyone
        self.version = 0
        self._acls: PatternTable[frozenset[Acl]] = PatternTable()
        self._invalid: PatternTable[str] = PatternTable()
        self._rights: dict[tuple[Principal, str], Rights] = {}
        self._kept: dict[tuple[Principal, str], dict[Question, Decision]] = {}
        self._kept_count = 0

    # Changes.

    def replace(self, pattern: ResourcePattern, acls: Iterable[Acl]) -> None:
        """Set the ACLs of a pattern; none removes it. Raises ValueError for a principal that does not parse."""
        after = frozenset(acls)
        for acl in after:
            parse_principal(acl.principal)
        before = self._acls.get(pattern) or frozenset()
        was_invalid = self._invalid.get(pattern) is not None
        self._invalid.remove(pattern)
        for acl in before - after:
            self._remove(pattern, acl)
        for acl in after - before:
            self._rights_of_acl(acl).add(pattern, acl)
        if after:
            self._acls.put(pattern, after)
        else:
            self._acls.remove(pattern)
        if was_invalid or before != after:
            self._changed()

    def invalidate(self, pattern: ResourcePattern, reason: str) -> None:
        """Deny the resources of a pattern whose ACLs cannot be read, until they are replaced."""
        self._invalid.put(pattern, reason)
        self._changed()

    def configure(self, super_users: Iterable[Principal], *, allow_everyone: bool) -> None:
        """Change what does not depend on ACLs."""
        self.super_users = frozenset(super_users)
        self.allow_everyone = allow_everyone
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._forget()

    def _forget(self) -> None:
        self._kept.clear()
        self._kept_count = 0

    def _rights_of_acl(self, acl: Acl) -> Rights:
        key = parse_principal(acl.principal), acl.host
        rights = self._rights.get(key)
        if rights is None:
            rights = self._rights[key] = Rights(acl.principal, acl.host)
        return rights

    def _remove(self, pattern: ResourcePattern, acl: Acl) -> None:
        rights = self._rights_of_acl(acl)
        rights.remove(pattern, acl)
        if not rights:
            del self._rights[parse_principal(acl.principal), acl.host]

    # What there is.

    @property
    def patterns(self) -> Collection[ResourcePattern]:
        """The patterns that have ACLs."""
        return self._acls.values.keys()

    @property
    def invalid(self) -> dict[ResourcePattern, str]:
        """The patterns whose ACLs cannot be read, with the reasons."""
        return self._invalid.values

    @property
    def count(self) -> int:
        """Number of ACLs."""
        return sum(map(len, self._acls.values.values()))

    def acls_of(self, pattern: ResourcePattern) -> frozenset[Acl]:
        """Return the ACLs of a pattern, the last known ones if they cannot be read."""
        return self._acls.get(pattern) or frozenset()

    def acls(self, wanted: AclFilter = ALL_ACLS) -> Iterator[AclBinding]:
        """Iterate over the ACLs that a filter selects."""
        for pattern, acls in self._acls.values.items():
            if wanted.matches_pattern(pattern):
                yield from (AclBinding(pattern, acl) for acl in acls if wanted.matches_acl(acl))

    # Decisions.

    def decide(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> Decision:
        """Return whether a principal may do something with a resource.

        Arguments:
            principal: of the connection.
            host: the address of the client.
            operation: a concrete one, neither ANY nor ALL.
            resource_type: of the resource.
            name: of the resource; CLUSTER_NAME for the cluster.
        """
        kept = self._kept.get((principal, host))
        if kept is None:
            kept = self._kept[principal, host] = {}
            self._kept_count += 1
        question = (operation, resource_type, name)
        decision = kept.get(question)
        if decision is None:
            decision = self._decide(principal, host, operation, resource_type, name)
            self._keep(kept, question, decision)
        return decision

    def allows_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Return whether a principal may do something with at least one resource of a type.

        Arguments:
            principal: of the connection.
            host: the address of the client.
            operation: a concrete one, neither ANY nor ALL.
            resource_type: of the resources.
        """
        # As in Kafka, this name stands for resources without ACLs of their own.
        if self.decide(principal, host, operation, resource_type, "hardcode").allowed:
            return True
        kept = self._kept.setdefault((principal, host), {})
        question = (operation, resource_type, None)
        decision = kept.get(question)
        if decision is None:
            rights = self._rights_of(principal, host)
            decision = Decision(allows_some(rights, resource_type, operation, self._invalid.values))
            self._keep(kept, question, decision)
        return decision.allowed

    def _keep(self, kept: dict[Question, Decision], question: Question, decision: Decision) -> None:
        if question[2] is not None and len(question[2]) > NAME_CHARACTERS_MAX:
            return
        self._kept_count += 1
        if self._kept_count > KEPT_DECISIONS_MAX:
            self._forget()
        else:
            kept[question] = decision

    def _rights_of(self, principal: Principal, host: str) -> list[Rights]:
        hosts = dict.fromkeys((host, java_address(host), WILDCARD))
        keys = dict.fromkeys((who, where) for who in (principal, WILDCARD_PRINCIPAL) for where in hosts)
        return [self._rights[key] for key in keys if key in self._rights]

    def _decide(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> Decision:
        if principal in self.super_users:
            return Decision(allowed=True, rule=SUPER_USER)
        if self._invalid.values and next(self._invalid.matching(resource_type, name), None) is not None:
            return Decision(allowed=False, rule=INVALID_ACLS)
        found = self._by_acls(self._rights_of(principal, host), operation, resource_type, name)
        if found is not None:
            return found
        if self.allow_everyone and next(self._acls.matching(resource_type, name), None) is None:
            return Decision(allowed=True, rule=DEFAULT_ALLOW)
        return Decision(allowed=False, rule=DEFAULT_DENY)

    def _by_acls(
        self, several: Iterable[Rights], operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> Decision | None:
        allowing, denying = ALLOWING_MASK[operation], DENYING_MASK[operation]
        allow: AclBinding | None = None
        for rights in several:
            for pattern, (allowed, denied) in rights.matching(resource_type, name):
                if denied & denying:
                    acl = rights.acl(PermissionType.DENY, denied, operation)
                    return Decision(allowed=False, acl=AclBinding(pattern, acl))
                if allow is None and allowed & allowing:
                    allow = AclBinding(pattern, rights.acl(PermissionType.ALLOW, allowed, operation))
        return None if allow is None else Decision(allowed=True, acl=allow)
