"""The errors of a transactional producer: each names the transactional id, the cause and the next step."""

from kafkalite.errors import KafkaError, KafkaErrorCode, OutcomeUnknownError, TransactionAbortedError, error_for

FENCED_TEXT = (
    "another producer uses this transactional id, or the transaction has exceeded transaction_timeout_ms, or was "
    "terminated; this producer is closed: give each producer an id of its own, or create another one to continue"
)
FATAL_TEXT = "this producer is closed; create another one when the cause is removed"


def abort_error(transactional_id: str, cause: KafkaError | None) -> TransactionAbortedError:
    """Return the error of a transaction that is aborted.

    Arguments:
        transactional_id: of the producer.
        cause: None = the application has aborted it.
    """
    reason = "the application has aborted it" if cause is None else str(cause)
    name = f"transactional id {transactional_id}: "
    text = f"{name}the transaction is aborted: {reason.replace(name, '')}"
    error = TransactionAbortedError(f"{text}; nothing of it is visible to read_committed consumers, begin another one")
    error.__cause__ = cause
    return error


def fenced_error(error: KafkaError, *, outcome_unknown: bool) -> KafkaError:
    """Return the error of a producer that another one has fenced.

    Arguments:
        error: of the request.
        outcome_unknown: a commit was sent and has no response; the cause of the result is an OutcomeUnknownError then.
    """
    doubt = "; whether the last transaction was committed is not known" if outcome_unknown else ""
    reason = getattr(error, "message", None) or error
    fenced = error_for(KafkaErrorCode.PRODUCER_FENCED, f"{reason}{doubt}; {FENCED_TEXT}")
    if outcome_unknown:
        fenced.__cause__ = OutcomeUnknownError("EndTxn was sent, and its response does not have the outcome")
    return fenced


def fatal_error(error: KafkaError) -> KafkaError:
    """Return the error of a producer that its coordinator rejects, for the `error` of a request."""
    text = f"{getattr(error, 'message', None) or error}; {FATAL_TEXT}"
    found = KafkaError(text) if error.code is None else error_for(error.code, text)
    found.__cause__ = error.__cause__
    return found


def batch_error(cause: BaseException) -> KafkaError:
    """Return the error of a batch as a KafkaError."""
    if isinstance(cause, KafkaError):
        return cause
    failure = KafkaError(f"a batch has failed: {cause!r}")
    failure.__cause__ = cause
    return failure
