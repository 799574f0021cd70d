"""AlterClientQuotas, key 49, v0-1: sets and removes client quotas (KIP-546).

Any broker writes them, and applies them when they are durable; the others follow. An entity that occurs twice in a
request is not changed.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from functools import partial

from kafkalite.callbacks import FanIn
from kafkalite.cluster.changes import Refusal, RefusedError
from kafkalite.cluster.configs.client_quotas import QuotaEntity, changed_texts, entity_of
from kafkalite.cluster.configs.quota_writes import QuotaChange
from kafkalite.coordination.znodes.quotas import DEFAULT
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from kafkalite.server.requests.call import AdminCall

OBJECTS_EACH = 10  # a change takes some 100 us

Asked = AlterClientQuotasRequest.EntryData
Entry = AlterClientQuotasResponse.EntryData
TWICE = Refusal(KafkaErrorCode.INVALID_REQUEST, "Each entity must appear at most once.")


def alter_client_quotas(call: AdminCall, request: AlterClientQuotasRequest) -> None:
    """Change each entity on its own; the response is sent when all changes are durable."""
    entries = request.entries
    outcomes: FanIn[Refusal | None] = FanIn(len(entries), call.guard(partial(answer, call, entries)))
    steps = alter_each(call, entries, request.validate_only, outcomes)
    call.in_slices(steps, OBJECTS_EACH * len(entries), lambda _none: None, changes=True)


def alter_each(
    call: AdminCall, entries: list[Asked], validate_only: bool, outcomes: FanIn[Refusal | None]
) -> Generator[None, None, None]:
    entities: list[QuotaEntity | Refusal] = []
    for entry in entries:
        entities.append(validate(entry))
        yield
    times = Counter(entity for entity in entities if isinstance(entity, QuotaEntity))
    for index, (entry, entity) in enumerate(zip(entries, entities, strict=True)):
        then = partial(outcomes.put, index)
        if isinstance(entity, Refusal) or times[entity] > 1:
            then(entity if isinstance(entity, Refusal) else TWICE)
        else:
            alter(call, entity, entry, validate_only, then)
        yield


def validate(entry: Asked) -> QuotaEntity | Refusal:
    """The entity of an entry."""
    try:
        return entity_of((each.entity_type, each.entity_name) for each in entry.entity)
    except RefusedError as error:
        return error.refusal


def alter(
    call: AdminCall, entity: QuotaEntity, entry: Asked, validate_only: bool, then: Callable[[Refusal | None], None]
) -> None:
    """Change one entity.

    Arguments:
        call: of the request.
        entity: whose quotas change.
        entry: the operations of the request.
        validate_only: nothing is stored.
        then: called with the reason why the change is rejected; None = it is done.
    """
    try:
        texts = changed_texts(entity, [(each.key, None if each.remove else each.value) for each in entry.ops])
    except RefusedError as error:
        then(error.refusal)
        return
    if validate_only:
        then(None)
    else:
        context = call.context

        def changed(refusal: Refusal | None) -> None:
            if refusal is None:
                context.quotas.change(entity, texts)
                call.log_change(context.audit_log, "changed", "quota", describe(entity, texts))
            then(refusal)

        QuotaChange(context.metadata, entity, texts, notify=context.in_cluster, then=changed).start()


def describe(entity: QuotaEntity, texts: Mapping[str, str | None]) -> str:
    """Return a change for the audit log, such as `of user alice: producer_byte_rate=10, consumer_byte_rate removed`."""
    names = ", ".join(f"{entity_type} {DEFAULT if name is None else name}" for entity_type, name in entity.names)
    values = ", ".join(f"{key} removed" if text is None else f"{key}={text}" for key, text in texts.items())
    return f"of {names}: {values}"


def answer(call: AdminCall, entries: list[Asked], outcomes: list[Refusal | None]) -> None:
    """Send the result of each entity."""
    call.answer_from(build_response(call, entries, outcomes), len(entries))


def build_response(
    call: AdminCall, entries: list[Asked], outcomes: list[Refusal | None]
) -> Generator[None, None, AlterClientQuotasResponse]:
    results = call.elements()
    for entry, refusal in zip(entries, outcomes, strict=True):
        names = [Entry.EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity]
        error, message = (refusal.error, refusal.message) if refusal else (0, None)
        results.add(Entry(error_code=error, error_message=message, entity=names), 1 + len(names))
        yield
    return AlterClientQuotasResponse(entries=results.finish())
