"""DescribeClientQuotas, key 48, v0-1: returns the stored client quotas (KIP-546)."""

from collections.abc import Generator
from functools import partial

from kafkalite.clock import Outcome
from kafkalite.cluster.changes import RefusedError
from kafkalite.cluster.configs.client_quotas import filter_of
from kafkalite.cluster.configs.quota_reads import Found, QuotaReader
from kafkalite.cluster.coordination_errors import code_of
from kafkalite.errors import reason_of
from kafkalite.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kafkalite.server.requests.call import AdminCall

Entry = DescribeClientQuotasResponse.EntryData


def describe_client_quotas(call: AdminCall, request: DescribeClientQuotasRequest) -> None:
    """Describe the entities that the filter matches."""
    components = [(each.entity_type, each.match_type, each.match) for each in request.components]
    try:
        wanted = filter_of(components, request.strict)
    except RefusedError as error:
        call.answer(refuse(error.refusal.error, error.refusal.message))
        return
    context, then = call.context, partial(answer, call)
    QuotaReader(context.metadata, context.slicer, wanted, then=then, guarded=call.guard).start()


def answer(call: AdminCall, outcome: Outcome) -> None:
    """Send what was read."""
    if outcome.error is not None:
        code = code_of(outcome.error)
        call.answer(refuse(code, reason_of(code)))
    else:
        call.answer_from(build_response(call, outcome.value), len(outcome.value))


def build_response(call: AdminCall, found: Found) -> Generator[None, None, DescribeClientQuotasResponse]:
    entries = call.elements()
    for entity, values in found.items():
        names = [Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.names]
        quotas = [Entry.ValueData(key=key, value=value) for key, value in values.items()]
        entries.add(Entry(entity=names, values=quotas), 1 + len(names) + len(quotas))
        yield
    return DescribeClientQuotasResponse(error_message=None, entries=entries.finish())


def refuse(error: int, text: str | None) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error, error_message=text, entries=None)
