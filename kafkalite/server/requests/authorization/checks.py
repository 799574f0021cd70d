"""Checks a request before its handler runs, by the row of its API key.

A request that is refused as a whole is answered here. One of which entries are refused is served without them; the
call adds them to the response (`AuthorizedCall`). If no entry is left, the handler is not called.
"""

from collections.abc import Callable
from types import GeneratorType
from typing import Any

from kafkalite.clock import Outcome
from kafkalite.server.requests.authorization.authorized_call import AnyCall, authorized_call
from kafkalite.server.requests.authorization.guards.by_key import GUARDS
from kafkalite.server.requests.authorization.refusals import (
    join_arrays,
    keep_entries,
    refuse_entry,
    refuse_in_steps,
    struct_of,
    structs_in,
)
from kafkalite.server.requests.authorization.table import CLUSTER, TABLE, Check, Effect, Row
from kafkalite.server.requests.deferred_free import empty_request
from kafkalite.slicing import Steps, finish, group_steps

PRODUCE = 0  # its frame is request memory until it is answered
new_call = authorized_call
Serve = Callable[[Any], object]


def check(call: AnyCall, request: Any) -> Any:
    """Return a request without its refused entries; None if nothing is left, and the call is answered.

    A key without a row raises KeyError: it is not served.
    """
    own = GUARDS.get(call.header.api_key)
    remaining = check_in_steps(call, request, TABLE[call.header.api_key]) if own is None else own(call, request)
    return finish(remaining) if isinstance(remaining, GeneratorType) else remaining


def check_large(call: AnyCall, request: Any, serve: Serve) -> None:
    """Check a request with thousands of entries over several loop iterations.

    Arguments:
        call: of the request; it is answered if the request is refused.
        request: the request.
        serve: called with the request without its refused entries, unless nothing is left.
    """
    key = call.header.api_key
    own = GUARDS.get(key)
    steps = check_in_steps(call, request, TABLE[key]) if own is None else own(call, request)
    if not isinstance(steps, GeneratorType):
        if steps is not None:
            serve(steps)
        return

    def checked(outcome: Outcome) -> None:
        call.reply.on_gone = None
        call.reply.in_progress = False
        call.reply.resume(pinned=key == PRODUCE)
        remaining = outcome.result()
        if remaining is None:
            call.context.slicer.run(empty_request(request), Outcome.result)
            return
        serve(remaining)
        call.context.replicas.write_pending()  # no loop iteration writes what it appends

    call.reply.pause()
    job = call.context.slicer.run(call.charge_steps(group_steps(steps)), call.guard(checked))
    if not job.ended:
        call.reply.in_progress = True
        call.reply.on_gone = job.cancel


def check_in_steps(call: AnyCall, request: Any, row: Row) -> Steps:
    """Make the checks of a row; returns the request without its refused entries, None if nothing is left."""
    for check in row.checks:
        if not check.applies(call.version):
            continue
        if check.effect is Effect.REFUSE and not may_pass(call, request, check):
            refusal = refuse_in_steps(call.response_type, call.version, request, check.error, row)
            call.answer((yield from refusal))
            return None
        if check.effect is Effect.FILTER and check.of and not suffices(call, check):
            yield from filter_entries(call, request, check, row)
            if call.refused is not None and not getattr(request, array_of(check)[0]):
                call.answer(call.response_type())
                return None
    return request


def may_pass(call: AnyCall, request: Any, check: Check) -> bool:
    """Return whether a request passes a check of its one resource."""
    if check.right.resource_type == CLUSTER:
        return suffices(call, check) or call.authorization.allows_cluster(check.right.operation)
    return call.authorization.allows(*check.right, getattr(request, check.of))


def suffices(call: AnyCall, check: Check) -> bool:
    """Return whether the principal has the right that makes a check needless."""
    return check.unless is not None and call.authorization.allows_cluster(check.unless.operation, log_denied=False)


def array_of(check: Check) -> tuple[str, str]:
    """Return the array of the request that a check filters, and the field with the name of an entry; "" = itself."""
    array, _, name = check.of.partition(".")
    return array, name


def filter_entries(call: AnyCall, request: Any, check: Check, row: Row) -> Steps:
    """Remove the entries without the right from the request; the call adds them to its response."""
    array, name = array_of(check)
    assert row.entries is not None
    target = row.entries[1]
    struct = struct_of(call.response_type, target)
    kept: list[Any] = []
    removed: list[Any] = []
    refused = call.elements()
    for entry in getattr(request, array):
        named = getattr(entry, name) if name else entry
        if call.authorization.allows(*check.right, named):
            kept.append(entry)
        else:
            refusal = yield from refuse_entry(call.elements(), struct, entry, check.error)
            refused.add(refusal, structs_in(refusal))
            removed.append(entry)
        yield
    if removed:
        yield from keep_entries(request, array, kept, removed)
        before = [] if call.refused is None else call.refused[1]
        call.refused = target, join_arrays(call.response_type, call.version, before, refused.finish())
