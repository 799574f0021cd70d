"""The errors of aiokafka by name: most are those of `kafkalite.errors`, which the engine raises.

So `except aiokafka.errors.KafkaError` catches every error of the engine. A class that is only defined here is raised
by this package alone, or never.
"""

from typing import Any

from kafkalite import errors
from kafkalite.errors import (
    AuthenticationError,
    BrokerResponseError,
    ClientUseError,
    DecodeError,
    KafkaConnectionError,
    KafkaError,
    KafkaErrorCode,
    error_class,
    is_known,
)
from kafkalite_sdk.compat.aiokafka.installation import missing


class ConsumerStoppedError(Exception):
    """The consumer is stopped."""


class IllegalOperation(Exception):
    """The operation does not fit the configuration: it needs a group, for example."""


class CommitFailedError(KafkaError):
    """The group has assigned the partitions to another member; the records are read again."""


class IllegalArgumentError(KafkaError):
    """An argument is not valid."""


class KafkaConfigurationError(KafkaError):
    """A setting is not valid."""


class Cancelled(KafkaError):
    """Never raised: cancelled requests raise CancelledError."""


class QuotaViolationError(KafkaError):
    """Never raised: the client waits for the throttle time."""


class NoError(KafkaError):
    """Never raised: code 0 is success."""

    errno = 0


ALIASES: dict[str, type[Exception]] = {
    "AuthenticationFailedError": AuthenticationError,
    "CorrelationIdError": DecodeError,
    "CorruptRecordException": errors.CorruptRecordError,
    "IllegalStateError": ClientUseError,
    "KafkaProtocolError": DecodeError,
    "KafkaUnavailableError": KafkaConnectionError,
    "MetadataEmptyBrokerList": KafkaConnectionError,
    "NoBrokersAvailable": KafkaConnectionError,
    "NodeNotReadyError": KafkaConnectionError,
    "ProducerClosed": ClientUseError,
    "StaleMetadata": errors.InvalidMetadataError,
    "TooManyInFlightRequests": errors.BufferExhaustedError,
}
"""Errors of aiokafka without a code."""

CODES = {
    "UnknownError": KafkaErrorCode.UNKNOWN_SERVER_ERROR,
    "InvalidFetchRequestError": KafkaErrorCode.INVALID_FETCH_SIZE,
    "NotLeaderForPartitionError": KafkaErrorCode.NOT_LEADER_OR_FOLLOWER,
    "MessageSizeTooLargeError": KafkaErrorCode.MESSAGE_TOO_LARGE,
    "StaleLeaderEpochCodeError": KafkaErrorCode.NETWORK_EXCEPTION,
    "GroupLoadInProgressError": KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "GroupCoordinatorNotAvailableError": KafkaErrorCode.COORDINATOR_NOT_AVAILABLE,
    "NotCoordinatorForGroupError": KafkaErrorCode.NOT_COORDINATOR,
    "InvalidReplicationAssignmentError": KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "InvalidConfigurationError": KafkaErrorCode.INVALID_CONFIG,
    "OutOfOrderSequenceNumber": KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    "DuplicateSequenceNumber": KafkaErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    "InvalidProducerEpoch": KafkaErrorCode.INVALID_PRODUCER_EPOCH,
    "ProducerFenced": KafkaErrorCode.PRODUCER_FENCED,
    "InvalidTxnState": KafkaErrorCode.INVALID_TXN_STATE,
    "InvalidProducerIdMapping": KafkaErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "InvalidTransactionTimeout": KafkaErrorCode.INVALID_TRANSACTION_TIMEOUT,
    "ConcurrentTransactions": KafkaErrorCode.CONCURRENT_TRANSACTIONS,
    "TransactionCoordinatorFenced": KafkaErrorCode.TRANSACTION_COORDINATOR_FENCED,
    "TransactionalIdAuthorizationFailed": KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "SecurityDisabled": KafkaErrorCode.SECURITY_DISABLED,
    "OperationNotAttempted": KafkaErrorCode.OPERATION_NOT_ATTEMPTED,
    "LogDirNotFound": KafkaErrorCode.LOG_DIR_NOT_FOUND,
    "SaslAuthenticationFailed": KafkaErrorCode.SASL_AUTHENTICATION_FAILED,
    "UnknownProducerId": KafkaErrorCode.UNKNOWN_PRODUCER_ID,
    "ReassignmentInProgress": KafkaErrorCode.REASSIGNMENT_IN_PROGRESS,
    "DelegationTokenAuthDisabled": KafkaErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    "DelegationTokenNotFound": KafkaErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    "DelegationTokenOwnerMismatch": KafkaErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
    "DelegationTokenRequestNotAllowed": KafkaErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    "DelegationTokenAuthorizationFailed": KafkaErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    "DelegationTokenExpired": KafkaErrorCode.DELEGATION_TOKEN_EXPIRED,
    "InvalidPrincipalType": KafkaErrorCode.INVALID_PRINCIPAL_TYPE,
    "NonEmptyGroup": KafkaErrorCode.NON_EMPTY_GROUP,
    "GroupIdNotFound": KafkaErrorCode.GROUP_ID_NOT_FOUND,
    "FetchSessionIdNotFound": KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    "InvalidFetchSessionEpoch": KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH,
    "ListenerNotFound": KafkaErrorCode.LISTENER_NOT_FOUND,
    "MemberIdRequired": KafkaErrorCode.MEMBER_ID_REQUIRED,
    "AuthenticationMethodNotSupported": KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM,
    "IncompatibleBrokerVersion": KafkaErrorCode.UNSUPPORTED_VERSION,
    "RecordTooLargeError": KafkaErrorCode.MESSAGE_TOO_LARGE,
    "UnrecognizedBrokerVersion": KafkaErrorCode.UNSUPPORTED_VERSION,
    "UnsupportedCodecError": KafkaErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}
"""Errors of aiokafka whose class has another name here, by name."""


def for_code(error_code: int) -> type[BrokerResponseError] | type[NoError]:
    """Return the class of an error code.

    Arguments:
        error_code: Kafka's code; an unknown one is an UnknownError.
    """
    if error_code == 0:
        return NoError
    return error_class(error_code if is_known(error_code) else KafkaErrorCode.UNKNOWN_SERVER_ERROR)


def __getattr__(name: str) -> Any:
    if name in ALIASES:
        return ALIASES[name]
    if name in CODES:
        return error_class(CODES[name])
    if name == "kafka_errors":
        return {0: NoError} | {int(code): error_class(code) for code in KafkaErrorCode if code}
    if name.startswith("__") or not hasattr(errors, name):
        raise missing(f"aiokafka.errors.{name}")
    return getattr(errors, name)
