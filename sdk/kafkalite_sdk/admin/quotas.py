"""Client quotas: describe, change (KIP-546)."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafkalite.errors import KafkaError
from kafkalite.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from kafkalite.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import Operation, check_result, require
from kafkalite_sdk.admin.outcomes import Outcomes

USER, CLIENT_ID, IP = "user", "client-id", "ip"
DEFAULT = None
"""In the place of a name: the default of all entities of the type."""

EXACT, DEFAULT_ONLY, ANY_NAME = 0, 1, 2
Entry = AlterClientQuotasRequest.EntryData


class AnyName:
    """Matches every name of a type of entities, the default not included."""


ANY = AnyName()


class QuotaEntity(NamedTuple):
    """Whom a quota limits: a user, a client id, both, or an address. DEFAULT (None) as a name = all without their own.

    Attributes:
        names: pairs of the type (USER, CLIENT_ID or IP) and the name, sorted.
    """

    names: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, names: Mapping[str, str | None]) -> "QuotaEntity":
        """Return the entity with these names by type, such as `{USER: "alice", CLIENT_ID: DEFAULT}`."""
        return cls(tuple(sorted(names.items())))


class Quotas:
    """The client quotas of a cluster.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def describe(
        self,
        names: Mapping[str, str | AnyName | None] | None = None,
        *,
        strict: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of entities by key, such as "producer_byte_rate".

        Arguments:
            names: for types the name, DEFAULT or ANY; all must match. None = all entities.
            strict: entities with further types do not match.

        Raises:
            KafkaError: they cannot be described.
        """
        component = DescribeClientQuotasRequest.ComponentData
        components = [
            component(entity_type=kind, match_type=_match(name), match=name if isinstance(name, str) else None)
            for kind, name in (names or {}).items()
        ]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        operation: Operation[None, dict[QuotaEntity, dict[str, float]]] = Operation(
            DescribeClientQuotasRequest, lambda _: request, _described
        )
        return (await self._driver.run(operation, [None], timeout))[None]

    async def alter(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[QuotaEntity, None]:
        """Set and remove quotas; those that are not named stay.

        Arguments:
            changes: of each entity the new values by key; None = remove the quota.
            validate_only: the broker only checks whether it would change them.
        """
        operation: Operation[QuotaEntity, None] = Operation(
            AlterClientQuotasRequest,
            lambda keys: AlterClientQuotasRequest(
                entries=[_entry(key, changes[key]) for key in keys], validate_only=validate_only
            ),
            _altered,
        )
        return await self._driver.run(operation, changes, timeout)


def _match(name: str | AnyName | None) -> int:
    return EXACT if isinstance(name, str) else DEFAULT_ONLY if name is None else ANY_NAME


def _described(
    response: DescribeClientQuotasResponse, _: object
) -> Iterator[tuple[None, dict[QuotaEntity, dict[str, float]]]]:
    require(response.error_code, response.error_message)
    yield (
        None,
        {
            QuotaEntity.of({each.entity_type: each.entity_name for each in entry.entity}): {
                each.key: each.value for each in entry.values
            }
            for entry in response.entries or ()
        },
    )


def _entry(entity: QuotaEntity, values: Mapping[str, float | None]) -> Entry:
    return Entry(
        entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.names],
        ops=[
            Entry.OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
            for key, value in values.items()
        ],
    )


def _altered(response: AlterClientQuotasResponse, _: object) -> Iterator[tuple[QuotaEntity, KafkaError | None]]:
    for entry in response.entries:
        entity = QuotaEntity.of({each.entity_type: each.entity_name for each in entry.entity})
        yield entity, check_result(entry.error_code, entry.error_message, None)
