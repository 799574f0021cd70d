"""Translates the errors of the coordination service to Kafka's error codes."""

from kafkalite.coordination.errors import BadVersionError, CoordinationError, NodeExistsError, NoNodeError
from kafkalite.errors import ErrorWithReason, KafkaErrorCode


def code_of(error: BaseException, exists: int = KafkaErrorCode.UNKNOWN_SERVER_ERROR) -> int:
    """The Kafka error code of a failed call. Raises an error that the service did not report."""
    if isinstance(error, NodeExistsError):
        return exists
    if isinstance(error, NoNodeError):
        return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if isinstance(error, BadVersionError):
        return KafkaErrorCode.NOT_CONTROLLER
    if isinstance(error, CoordinationError):
        return ErrorWithReason(KafkaErrorCode.KAFKA_STORAGE_ERROR, failure_of(error))
    raise error


def failure_of(error: CoordinationError) -> str:
    """Why the service did not store a change, for clients: without paths."""
    cause = error.__cause__
    detail = cause.strerror if isinstance(cause, OSError) and cause.strerror else error.words
    return f"the metadata cannot be written: {detail}"
