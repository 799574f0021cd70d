"""ACLs: list, create, delete (KIP-140, KIP-290)."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeVar

from kafkalite.errors import KafkaError, error_for
from kafkalite.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kafkalite.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kafkalite.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import OpenEnum, Operation, check_result, require
from kafkalite_sdk.admin.outcomes import Outcomes

DescribedResource = DescribeAclsResponse.DescribeAclsResource
DescribedAcl = DescribedResource.AclDescription
DeletedFilter = DeleteAclsRequest.DeleteAclsFilter
MatchingAcl = DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl
Filter = TypeVar("Filter", DescribeAclsRequest, DeletedFilter)


class AclResource(OpenEnum):
    """The type of a resource (ResourceType.java); UNKNOWN = a type of a newer broker, here and below."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(OpenEnum):
    """How a resource is named (PatternType.java). ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(OpenEnum):
    """An operation (AclOperation.java). ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(OpenEnum):
    """Whether the operation is denied or allowed (AclPermissionType.java). ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """An ACL.

    Attributes:
        resource, name, pattern: the resource, or all whose names begin with `name` (PREFIXED).
        principal: such as "User:alice".
        host: an address, "*" = all.
        operation: which is denied or allowed.
        permission: DENY or ALLOW.
    """

    resource: AclResource
    name: str
    principal: str
    operation: AclOperation
    permission: Permission = Permission.ALLOW
    pattern: Pattern = Pattern.LITERAL
    host: str = "*"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter: an ACL matches if each field does; the defaults match all.

    Attributes:
        resource, name, pattern: of the resource; Pattern.MATCH = all patterns that apply to the name.
        principal, host: None = all.
        operation, permission: ANY = all.
    """

    resource: AclResource = AclResource.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY
    pattern: Pattern = Pattern.ANY
    host: str | None = None


class Acls:
    """The ACLs of a cluster. A broker without an authorizer fails with SecurityDisabledError.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def list(self, wanted: AclFilter | None = None, *, timeout: float | None = None) -> tuple[Acl, ...]:
        """List ACLs, sorted.

        Arguments:
            wanted: which ACLs; None = all.

        Raises:
            KafkaError: they cannot be listed.
        """
        request = _filter(DescribeAclsRequest, AclFilter() if wanted is None else wanted)
        operation: Operation[None, tuple[Acl, ...]] = Operation(DescribeAclsRequest, lambda _: request, _listed)
        return (await self._driver.run(operation, [None], timeout))[None]

    async def create(self, *acls: Acl, timeout: float | None = None) -> Outcomes[Acl, None]:
        """Create ACLs; one that exists is no error.

        Arguments:
            acls: to create.
        """
        operation: Operation[Acl, None] = Operation(
            CreateAclsRequest, lambda keys: CreateAclsRequest(creations=[_creation(each) for each in keys]), _created
        )
        return await self._driver.run(operation, dict.fromkeys(acls), timeout)

    async def delete(self, *filters: AclFilter, timeout: float | None = None) -> Outcomes[AclFilter, tuple[Acl, ...]]:
        """Delete the ACLs that match filters. The results are the deleted ACLs of each filter, sorted.

        Arguments:
            filters: which ACLs.
        """
        operation: Operation[AclFilter, tuple[Acl, ...]] = Operation(
            DeleteAclsRequest,
            lambda keys: DeleteAclsRequest(filters=[_filter(DeletedFilter, each) for each in keys]),
            _deleted,
        )
        return await self._driver.run(operation, dict.fromkeys(filters), timeout)


def _listed(response: DescribeAclsResponse, _: object) -> Iterator[tuple[None, tuple[Acl, ...]]]:
    require(response.error_code, response.error_message)
    acls = (_acl(resource, each) for resource in response.resources for each in resource.acls)
    yield None, tuple(sorted(acls))


def _acl(resource: DescribedResource | MatchingAcl, entry: DescribedAcl | MatchingAcl) -> Acl:
    """Return an ACL of a response; a matching ACL of DeleteAcls is its own resource."""
    return Acl(
        AclResource(resource.resource_type),
        resource.resource_name,
        entry.principal,
        AclOperation(entry.operation),
        Permission(entry.permission_type),
        Pattern(resource.pattern_type),
        entry.host,
    )


def _creation(acl: Acl) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=acl.resource,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _created(response: CreateAclsResponse, keys: Collection[Acl]) -> Iterator[tuple[Acl, KafkaError | None]]:
    for key, each in zip(keys, response.results, strict=False):  # in the order of the request
        yield key, check_result(each.error_code, each.error_message, None)


def _filter(message: type[Filter], each: AclFilter) -> Filter:
    """Return a filter as a message; both messages have the same fields."""
    return message(
        resource_type_filter=each.resource,
        resource_name_filter=each.name,
        pattern_type_filter=each.pattern,
        principal_filter=each.principal,
        host_filter=each.host,
        operation=each.operation,
        permission_type=each.permission,
    )


def _deleted(
    response: DeleteAclsResponse, keys: Collection[AclFilter]
) -> Iterator[tuple[AclFilter, tuple[Acl, ...] | KafkaError]]:
    for key, result in zip(keys, response.filter_results, strict=False):  # in the order of the request
        yield key, _matching(result)


def _matching(result: DeleteAclsResponse.DeleteAclsFilterResult) -> tuple[Acl, ...] | KafkaError:
    if result.error_code:
        return error_for(result.error_code, result.error_message)
    for each in result.matching_acls:
        if each.error_code:
            return error_for(each.error_code, each.error_message)
    return tuple(sorted(_acl(each, each) for each in result.matching_acls))
