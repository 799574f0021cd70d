"""DescribeTransactions, key 65, v0: returns the state of transactional ids (KIP-664).

Errors: TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST for an empty id, and those of the coordinator.
"""

from functools import partial

from kafkalite.callbacks import Completion, FanIn
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kafkalite.server.requests.call import TransactionCall
from kafkalite.server.requests.transactions.states import STATE_NAMES
from kafkalite.slicing import Steps
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType
from kafkalite.state.transactions.metadata import TransactionMetadata

NONE = -1
State = DescribeTransactionsResponse.TransactionState
Topic = State.TopicData


def describe_transactions(call: TransactionCall, request: DescribeTransactionsRequest) -> None:
    """Describe each transactional id, once its records are committed."""
    ids = request.transactional_ids
    gathered = FanIn[State](len(ids), call.guard(partial(answer, call)))
    call.in_slices(describe_each(call, ids, gathered), len(ids), ended)


def describe_each(call: TransactionCall, ids: list[str], gathered: FanIn[State]) -> Steps:
    """Query each id; `gathered` receives the results."""
    for at, transactional_id in enumerate(ids):
        put = partial(gathered.put, at)
        if transactional_id:
            found = partial(put_found, call, put, transactional_id)
            failed = partial(put_failed, put, transactional_id)
            call.context.transactions.describe(transactional_id, Completion(found, failed))
        else:
            put(failed_state(transactional_id, KafkaErrorCode.INVALID_REQUEST))
        yield


def put_found(
    call: TransactionCall, put: partial[None], transactional_id: str, metadata: TransactionMetadata | None
) -> None:
    """Put the state of an id; None = it does not exist."""
    if metadata is None:
        put(failed_state(transactional_id, KafkaErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
    else:
        state = state_of(metadata)
        if call.authorization is not None:
            names = call.authorization.allowed_names(
                AclOperation.DESCRIBE, AclResourceType.TOPIC, [each.topic for each in state.topics]
            )
            state.topics = [each for each in state.topics if each.topic in names]
        put(state)


def put_failed(put: partial[None], transactional_id: str, error: int) -> None:
    """Put the error of the coordinator."""
    put(failed_state(transactional_id, error))


def failed_state(transactional_id: str, error: int) -> State:
    """The result for an error code."""
    return State(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def state_of(metadata: TransactionMetadata) -> State:
    """The result for the state of a transactional id; its partitions are in order."""
    topics: dict[str, list[int]] = {}
    for name, partition in sorted(metadata.partitions):
        topics.setdefault(name, []).append(partition)
    return State(
        transactional_id=metadata.transactional_id,
        transaction_state=STATE_NAMES[metadata.state],
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[Topic(topic=name, partitions=partitions) for name, partitions in topics.items()],
    )


def answer(call: TransactionCall, states: list[State]) -> None:
    """Send the states, in slices if there are many."""
    call.answer_from(build_response(call, states), len(states))


def build_response(call: TransactionCall, states: list[State]) -> Steps:
    array = call.elements()
    for state in states:
        array.add(state, 1 + sum(1 + len(topic.partitions) for topic in state.topics))
        yield
    return DescribeTransactionsResponse(transaction_states=array.finish())


def ended(_steps: None) -> None:
    """Do nothing: the response follows when all ids are described."""
