"""ListTransactions, key 66, v0-2: lists the transactional ids that this broker coordinates (KIP-664).

While a shard is loading, the request fails with COORDINATOR_LOAD_IN_PROGRESS.

Version notes: v1 minimum duration since the start of the transaction (KIP-994); v2 pattern of transactional ids, which
RE2 matches as a whole; an invalid one fails with INVALID_REGULAR_EXPRESSION (KIP-1152).

Source: TransactionStateManager.listTransactionStates.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafkalite.server.requests.call import TransactionCall
from kafkalite.server.requests.transactions.states import STATE_NAMES, TRANSIENT
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType
from kafkalite.state.transactions.metadata import TransactionMetadata

if TYPE_CHECKING:  # imported with an authorizer
    from kafkalite.server.security.authorization import Authorization

State = ListTransactionsResponse.TransactionState
Filter = Callable[[TransactionMetadata], bool]


def list_transactions(call: TransactionCall, request: ListTransactionsRequest) -> ListTransactionsResponse | None:
    """List the transactions that pass all filters, once their records are committed."""
    matches = pattern_of(request.transactional_id_pattern)
    if matches is None:
        return failure(KafkaErrorCode.INVALID_REGULAR_EXPRESSION)
    is_listed = filter_of(request, matches, call.context.clock.wall_ms())
    unknown = [name for name in request.state_filters if name not in {*STATE_NAMES.values(), *TRANSIENT}]
    call.in_slices(encode(call, is_listed), call.context.transactions.count(), partial(answer, call, unknown))
    return None


def pattern_of(pattern: str | None) -> Callable[[str], object] | None:
    """Return the function that matches transactional ids, None for an invalid pattern."""
    if not pattern:
        return lambda _transactional_id: True
    from kafkalite.coordinators.group.regex_resolver import compile_pattern, complaint  # RE2, for patterns only

    if complaint(pattern) is not None:
        return None
    matches: Callable[[str], object] = compile_pattern(pattern).fullmatch
    return matches


def filter_of(request: ListTransactionsRequest, matches: Callable[[str], object], now_ms: int) -> Filter:
    """Return the function that decides whether a transaction is listed.

    Arguments:
        request: with the filters; an empty one lists all.
        matches: whether a transactional id is listed.
        now_ms: wall time.
    """
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    duration_ms = request.duration_filter

    def is_listed(metadata: TransactionMetadata) -> bool:
        return bool(
            (not producer_ids or metadata.producer_id in producer_ids)
            and (not states or STATE_NAMES[metadata.state] in states)
            and (duration_ms < 0 or now_ms - metadata.start_ms > duration_ms)
            and matches(metadata.transactional_id)
        )

    return is_listed


def encode(call: TransactionCall, is_listed: Filter) -> Generator[None, None, tuple[list[Any], Any]]:
    """Return the listed transactions as an array of the response, and the machines that were queried."""
    array = call.elements()

    def put(metadata: TransactionMetadata) -> None:
        state = STATE_NAMES[metadata.state]
        array.add(
            State(
                transactional_id=metadata.transactional_id,
                producer_id=metadata.producer_id,
                transaction_state=state,
            )
        )

    authorization = call.authorization
    if authorization is not None:
        is_listed = allowed_only(authorization, is_listed)
    machines = yield from call.context.transactions.list(is_listed, put)
    return array.finish(), machines


def allowed_only(authorization: "Authorization", is_listed: Filter) -> Filter:
    """Return a filter that also leaves out the transactional ids that the client may not describe."""

    def both(metadata: TransactionMetadata) -> bool:
        return is_listed(metadata) and authorization.allows(
            AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, metadata.transactional_id, log_denied=False
        )

    return both


def answer(call: TransactionCall, unknown: list[str], found: tuple[list[Any], Any]) -> None:
    """Send the response when everything that it shows is committed.

    Arguments:
        call: the request.
        unknown: state filters that are no states.
        found: what `encode` returns.
    """
    states, machines = found

    def committed(error: int) -> None:
        if error:
            call.answer(failure(error))
        else:
            call.answer(ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states))

    call.context.transactions.when_committed(machines, call.guard(committed))


def failure(error: int) -> ListTransactionsResponse:
    """The response for an error."""
    return ListTransactionsResponse(error_code=error, unknown_state_filters=[], transaction_states=[])
