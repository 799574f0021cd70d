"""The transition table of transactions: state x event x epoch relation x version -> an error, or an action.

`RULES` is literal; `TABLE` has one row per combination. A missing or a repeated combination is a bug: KeyError.

Source: TransactionCoordinator.scala of Apache Kafka 4.4. Rows of EndTxn with TV2 are the table above `endTransaction`.
PrepareCommit and PrepareAbort are always pending in Kafka: the callback of the commit prepares the completion before it
sends the markers, and so does the loading. Thus their rows are those of a pending transition, and the outcome of a
repeated EndTxn is compared only once the transaction is complete.
"""

from itertools import product

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.transactions import actions
from kafkalite.state.transactions.states import EpochRelation, TransactionEvent, TransactionState, TransactionVersion
from kafkalite.state.transactions.step import TransactionRow as Row

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = ((each,) for each in TransactionState)
INIT, ADD, VERIFY, COMMIT, ABORT, MARKERS, TIMEOUT, EXPIRED = ((each,) for each in TransactionEvent)
NOT_GIVEN, CURRENT, PREVIOUS, OLDER, NEWER, PREVIOUS_ID, OTHER_ID = ((each,) for each in EpochRelation)
TV1, TV2 = ((each,) for each in TransactionVersion)
BOTH = TV1 + TV2
PREPARE = PREPARE_COMMIT + PREPARE_ABORT
COMPLETE = COMPLETE_COMMIT + COMPLETE_ABORT
IDLE = EMPTY + COMPLETE
ALL = IDLE + ONGOING + PREPARE
REQUESTS = CURRENT + PREVIOUS + OLDER + NEWER + PREVIOUS_ID + OTHER_ID
STALE = PREVIOUS + OLDER + NEWER
END = COMMIT + ABORT

FENCED, MAPPING = Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_ID_MAPPING
CONCURRENT, INVALID = Error.CONCURRENT_TRANSACTIONS, Error.INVALID_TXN_STATE
INIT_SOURCE, ADD_SOURCE = "prepareInitProducerIdTransit", "handleAddPartitionsToTransaction"
VERIFY_SOURCE, TV1_SOURCE, TV2_SOURCE = "handleVerifyPartitionsInTransaction", "endTransactionWithTV1", "endTransaction"

Rule = tuple[
    tuple[TransactionState, ...],
    tuple[TransactionEvent, ...],
    tuple[EpochRelation, ...],
    tuple[TransactionVersion, ...],
    Row,
]
RULES: tuple[Rule, ...] = (
    (PREPARE, INIT, NOT_GIVEN + REQUESTS, BOTH, Row(CONCURRENT, None, INIT_SOURCE)),
    (IDLE + ONGOING, INIT, OTHER_ID, BOTH, Row(FENCED, None, INIT_SOURCE)),
    (ONGOING, INIT, NOT_GIVEN + CURRENT + STALE + PREVIOUS_ID, BOTH, Row(0, actions.fence, INIT_SOURCE)),
    (IDLE, INIT, NOT_GIVEN + CURRENT, BOTH, Row(0, actions.start_session, INIT_SOURCE)),
    (IDLE, INIT, PREVIOUS + PREVIOUS_ID, BOTH, Row(0, actions.repeat_session, "KIP-360")),
    # Deviation: with an exhausted epoch Kafka raises an exception.
    (IDLE, INIT, OLDER + NEWER, BOTH, Row(FENCED, None, "prepareIncrementProducerEpoch")),
    (PREPARE, ADD, REQUESTS, BOTH, Row(CONCURRENT, None, ADD_SOURCE)),  # also with the next producer id
    (IDLE + ONGOING, ADD, PREVIOUS_ID + OTHER_ID, BOTH, Row(MAPPING, None, ADD_SOURCE)),
    (IDLE + ONGOING, ADD, STALE, BOTH, Row(FENCED, None, ADD_SOURCE)),
    (ONGOING, ADD, CURRENT, BOTH, Row(0, actions.add, ADD_SOURCE)),
    (IDLE, ADD, CURRENT, BOTH, Row(0, actions.begin, ADD_SOURCE)),
    (ALL, VERIFY, PREVIOUS_ID + OTHER_ID, BOTH, Row(MAPPING, None, VERIFY_SOURCE)),
    (ALL, VERIFY, STALE, BOTH, Row(FENCED, None, VERIFY_SOURCE)),
    (PREPARE, VERIFY, CURRENT, BOTH, Row(CONCURRENT, None, VERIFY_SOURCE)),
    (ONGOING + IDLE, VERIFY, CURRENT, BOTH, Row(0, actions.verify, VERIFY_SOURCE)),
    # EndTxn, TV1
    (ALL, END, PREVIOUS_ID + OTHER_ID, TV1, Row(MAPPING, None, TV1_SOURCE)),
    (ALL, END, STALE, TV1, Row(FENCED, None, TV1_SOURCE)),
    (EMPTY, END, CURRENT, TV1, Row(INVALID, None, TV1_SOURCE)),
    (ONGOING, COMMIT, CURRENT, TV1, Row(0, actions.commit, TV1_SOURCE)),
    (ONGOING, ABORT, CURRENT, TV1, Row(0, actions.abort, TV1_SOURCE)),
    (PREPARE, END, CURRENT, TV1, Row(CONCURRENT, None, TV1_SOURCE)),
    (COMPLETE_COMMIT, COMMIT, CURRENT, TV1, Row(0, actions.repeat_end, TV1_SOURCE)),
    (COMPLETE_COMMIT, ABORT, CURRENT, TV1, Row(INVALID, None, TV1_SOURCE)),
    (COMPLETE_ABORT, COMMIT, CURRENT, TV1, Row(INVALID, None, TV1_SOURCE)),
    (COMPLETE_ABORT, ABORT, CURRENT, TV1, Row(0, actions.repeat_end, TV1_SOURCE)),
    # EndTxn, TV2 (KIP-890, part 2)
    (PREPARE, END, REQUESTS, TV2, Row(CONCURRENT, None, "KAFKA-18464")),
    (IDLE + ONGOING, END, OTHER_ID, TV2, Row(MAPPING, None, TV2_SOURCE)),
    (IDLE + ONGOING, END, OLDER + NEWER, TV2, Row(FENCED, None, TV2_SOURCE)),
    (EMPTY + ONGOING, END, PREVIOUS + PREVIOUS_ID, TV2, Row(FENCED, None, TV2_SOURCE)),
    (ONGOING, COMMIT, CURRENT, TV2, Row(0, actions.commit, TV2_SOURCE)),
    (ONGOING, ABORT, CURRENT, TV2, Row(0, actions.abort, TV2_SOURCE)),
    (COMPLETE_COMMIT, COMMIT, PREVIOUS + PREVIOUS_ID, TV2, Row(0, actions.repeat_end, TV2_SOURCE)),
    (COMPLETE_COMMIT, ABORT, PREVIOUS + PREVIOUS_ID, TV2, Row(INVALID, None, TV2_SOURCE)),
    (COMPLETE_ABORT, COMMIT, PREVIOUS + PREVIOUS_ID, TV2, Row(INVALID, None, TV2_SOURCE)),
    (COMPLETE_ABORT, ABORT, PREVIOUS + PREVIOUS_ID, TV2, Row(0, actions.repeat_end, TV2_SOURCE)),
    (IDLE, COMMIT, CURRENT, TV2, Row(INVALID, None, TV2_SOURCE)),
    (IDLE, ABORT, CURRENT, TV2, Row(0, actions.abort, TV2_SOURCE)),
    # markers and time
    (PREPARE, MARKERS, CURRENT, BOTH, Row(0, actions.complete, "maybeWriteTxnCompletion")),
    (IDLE + ONGOING, MARKERS, CURRENT, BOTH, Row(0, actions.ignore, "deviation: Kafka logs an error")),
    (ALL, MARKERS, STALE + PREVIOUS_ID + OTHER_ID, BOTH, Row(0, actions.ignore, "writeTxnCompletion")),
    # Deviation: a timeout of 2**31 - 1, with which Kafka marks two-phase commits (KIP-939), ends, too.
    (ONGOING, TIMEOUT, NOT_GIVEN, BOTH, Row(0, actions.fence, "abortTimedOutTransactions")),
    (IDLE + PREPARE, TIMEOUT, NOT_GIVEN, BOTH, Row(0, actions.ignore, "timedOutTransactions")),
    (IDLE, EXPIRED, NOT_GIVEN, BOTH, Row(0, actions.expire, "removeExpiredTransactionalIds")),
    (ONGOING + PREPARE, EXPIRED, NOT_GIVEN, BOTH, Row(0, actions.ignore, "removeExpiredTransactionalIds")),
)


def expand_rules(rules: tuple[Rule, ...]) -> dict[tuple[object, ...], Row]:
    """One row for each combination of the rules; ValueError if two rules have the same one."""
    table: dict[tuple[object, ...], Row] = {}
    for states, events, relations, versions, row in rules:
        for key in product(states, events, relations, versions):
            if key in table:
                raise ValueError(f"two rules for {key}")
            table[key] = row
    return table


TABLE = expand_rules(RULES)
