"""Defines Kafka's error codes and their exceptions, in one table for broker and client.

The error of a partition or a resource is an int (`KafkaErrorCode` is one); an exception is the error of a whole
request or connection. `retriable` = the same request may succeed later. `refresh` = retriable, after new metadata.
`fatal` = the client object that received it cannot continue. Codes and names are those of Apache Kafka 4.3
(Errors.java); the flags follow the exception class of each code (RetriableException, InvalidMetadataException) and
KIP-1050.
"""

from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from typing import Any


class ErrorWithReason(int):
    """A Kafka error code that carries the reason of a failed call, for error messages and logs.

    Arguments:
        code: the Kafka error code.
        reason: a sentence without its full stop; without paths, as clients receive it.
    """

    reason: str

    def __new__(cls, code: int, reason: str) -> "ErrorWithReason":
        error = super().__new__(cls, code)
        error.reason = reason
        return error


def reason_of(error: int) -> str | None:
    """The reason that an error code carries, or None."""
    return error.reason if isinstance(error, ErrorWithReason) else None


RETRY, REFRESH, FATAL = 1, 3, 4  # bits: how a client reacts to a code; REFRESH implies RETRY


class KafkaErrorCode(IntEnum):
    """Every error code of Kafka 4.3: `NAME = code, message, traits`."""

    message: str
    retriable: bool
    refresh: bool
    fatal: bool

    def __new__(cls, code: int, message: str = "", traits: int = 0) -> "KafkaErrorCode":
        self = int.__new__(cls, code)
        self._value_ = code
        self.message = message
        self.retriable = bool(traits & RETRY)
        self.refresh = traits & REFRESH == REFRESH
        self.fatal = bool(traits & FATAL)
        return self

    UNKNOWN_SERVER_ERROR = -1, "unexpected error in the broker; see its log"
    NONE = 0, "no error"
    OFFSET_OUT_OF_RANGE = 1, "the offset is outside the log of the partition"
    CORRUPT_MESSAGE = 2, "a record batch has a wrong checksum, size or format", RETRY
    UNKNOWN_TOPIC_OR_PARTITION = 3, "this broker has no such topic or partition", REFRESH
    INVALID_FETCH_SIZE = 4, "the fetch size is not allowed"
    LEADER_NOT_AVAILABLE = 5, "the partition has no leader at the moment", REFRESH
    NOT_LEADER_OR_FOLLOWER = 6, "this broker is not the leader (or a replica) of the partition", REFRESH
    REQUEST_TIMED_OUT = 7, "the request timed out", RETRY
    BROKER_NOT_AVAILABLE = 8, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, "the replica is not on this broker", REFRESH
    MESSAGE_TOO_LARGE = 10, "a record batch is larger than the topic allows"
    STALE_CONTROLLER_EPOCH = 11, "the controller epoch of the request is older than the current one"
    OFFSET_METADATA_TOO_LARGE = 12, "the metadata of an offset commit is too long"
    NETWORK_EXCEPTION = 13, "the connection failed before the response was received", REFRESH
    COORDINATOR_LOAD_IN_PROGRESS = 14, "the coordinator is still loading", RETRY
    COORDINATOR_NOT_AVAILABLE = 15, "the coordinator is not available", RETRY
    NOT_COORDINATOR = 16, "this broker is not the coordinator", RETRY
    INVALID_TOPIC_EXCEPTION = 17, "the topic name or the operation on this topic is not allowed"
    RECORD_LIST_TOO_LARGE = 18, "the batch is larger than a log segment"
    NOT_ENOUGH_REPLICAS = 19, "fewer replicas are in sync than min.insync.replicas requires", RETRY
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "the batch was appended, but fewer replicas are in sync than required", RETRY
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1"
    ILLEGAL_GENERATION = 22, "the generation of the request is not that of the group"
    INCONSISTENT_GROUP_PROTOCOL = 23, "the member and the group have no protocol in common"
    INVALID_GROUP_ID = 24, "the group id is not allowed"
    UNKNOWN_MEMBER_ID = 25, "the group has no member with this id"
    INVALID_SESSION_TIMEOUT = 26, "the session timeout is outside the broker's limits"
    REBALANCE_IN_PROGRESS = 27, "the group is rebalancing; rejoin"
    INVALID_COMMIT_OFFSET_SIZE = 28, "the offset commit is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, "not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 30, "not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, "not allowed on this cluster", FATAL
    INVALID_TIMESTAMP = 32, "a record's timestamp is outside the allowed range"
    UNSUPPORTED_SASL_MECHANISM = 33, "the broker does not offer this SASL mechanism", FATAL
    ILLEGAL_SASL_STATE = 34, "the request is not valid in this state of the authentication"
    UNSUPPORTED_VERSION = 35, "the broker does not support this version of the request", FATAL
    TOPIC_ALREADY_EXISTS = 36, "a topic of this name exists"
    INVALID_PARTITIONS = 37, "the number of partitions is not allowed"
    INVALID_REPLICATION_FACTOR = 38, "the replication factor is below 1 or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, "the replica assignment is not valid"
    INVALID_CONFIG = 40, "a configuration value is not valid"
    NOT_CONTROLLER = 41, "this broker is not the controller", RETRY
    INVALID_REQUEST = 42, "the request is malformed or contradicts itself"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "the log's message format does not support this"
    POLICY_VIOLATION = 44, "the request violates a policy of this cluster"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "a sequence number does not follow the last one of its producer"
    DUPLICATE_SEQUENCE_NUMBER = 46, "a batch with this sequence number was already appended"
    INVALID_PRODUCER_EPOCH = 47, "the producer epoch is older than the current one"
    INVALID_TXN_STATE = 48, "the request is not valid in the current state of the transaction", FATAL
    INVALID_PRODUCER_ID_MAPPING = 49, "the producer id does not belong to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, "the transaction timeout is above transaction.max.timeout.ms of the broker"
    CONCURRENT_TRANSACTIONS = 51, "the previous transaction is not complete yet", RETRY
    TRANSACTION_COORDINATOR_FENCED = 52, "a newer transaction coordinator has fenced this one", FATAL
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "not allowed to use this transactional id", FATAL
    SECURITY_DISABLED = 54, "security features are not enabled on the broker"
    OPERATION_NOT_ATTEMPTED = 55, "not attempted, as another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, "disk error on the broker for the log of the partition", REFRESH
    LOG_DIR_NOT_FOUND = 57, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, "authentication failed", FATAL
    UNKNOWN_PRODUCER_ID = 59, "the broker has no state of this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, "the partition is being reassigned"
    DELEGATION_TOKEN_AUTH_DISABLED = (
        61,
        "delegation tokens are disabled; set delegation.token.secret.key of all brokers",
    )
    DELEGATION_TOKEN_NOT_FOUND = 62, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "the delegation token has another owner"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        "delegation tokens need a login by SASL or a client certificate, not by a token",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "not allowed on this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, "this principal type is not supported"
    NON_EMPTY_GROUP = 68, "the group has members"
    GROUP_ID_NOT_FOUND = 69, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, "the broker has no such fetch session", RETRY
    INVALID_FETCH_SESSION_EPOCH = 71, "the fetch session has another epoch", RETRY
    LISTENER_NOT_FOUND = 72, "the leader has no listener of this name", REFRESH
    TOPIC_DELETION_DISABLED = 73, "the deletion of topics is disabled"
    FENCED_LEADER_EPOCH = 74, "the leader epoch of the request is older than the broker's", REFRESH
    UNKNOWN_LEADER_EPOCH = 75, "the leader epoch of the request is newer than the broker's", REFRESH
    UNSUPPORTED_COMPRESSION_TYPE = 76, "this compression is not allowed in this version"
    STALE_BROKER_EPOCH = 77, "the broker epoch is older than the current one"
    OFFSET_NOT_AVAILABLE = 78, "the new leader does not know its high watermark yet", RETRY
    MEMBER_ID_REQUIRED = 79, "join again with the member id in this response"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "the preferred leader is not available", REFRESH
    GROUP_MAX_SIZE_REACHED = 81, "the group is full"
    FENCED_INSTANCE_ID = 82, "another member has joined with the same group instance id", FATAL
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "no replica is eligible as leader", REFRESH
    ELECTION_NOT_NEEDED = 84, "a leader election is not needed", REFRESH
    NO_REASSIGNMENT_IN_PROGRESS = 85, "the partition is not being reassigned"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "a member of the group is subscribed to this topic"
    INVALID_RECORD = 87, "a record violates a rule of the broker or the topic"
    UNSTABLE_OFFSET_COMMIT = 88, "the offsets are part of an open transaction", RETRY
    THROTTLING_QUOTA_EXCEEDED = 89, "the quota is exceeded", RETRY
    PRODUCER_FENCED = 90, "a newer producer with the same transactional id has fenced this one", FATAL
    RESOURCE_NOT_FOUND = 91, "there is no such resource"
    DUPLICATE_RESOURCE = 92, "the request names a resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, "the credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, "the voters of the quorum differ"
    INVALID_UPDATE_VERSION = 95, "the version to update to is not valid"
    FEATURE_UPDATE_FAILED = 96, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "a forwarded principal could not be read"
    SNAPSHOT_NOT_FOUND = 98, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, "this broker has no topic of this id", REFRESH
    DUPLICATE_BROKER_REGISTRATION = 101, "another running broker has this id"
    BROKER_ID_NOT_REGISTERED = 102, "no broker of this id is registered"
    INCONSISTENT_TOPIC_ID = 103, "the topic id in the log differs from the request's", REFRESH
    INCONSISTENT_CLUSTER_ID = 104, "the cluster id of the request is not that of this cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "the fetch session mixes topic names and topic ids", RETRY
    INELIGIBLE_REPLICA = 107, "the replica may not join the in-sync set"
    NEW_LEADER_ELECTED = 108, "the change has led to the election of another leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "the offset is in tiered storage"
    FENCED_MEMBER_EPOCH = 110, "the member epoch is fenced; release all partitions and rejoin"
    UNRELEASED_INSTANCE_ID = 111, "the group instance id is still in use"
    UNSUPPORTED_ASSIGNOR = 112, "the broker has no such assignor"
    STALE_MEMBER_EPOCH = 113, "the member epoch is outdated; retry after the next heartbeat"
    MISMATCHED_ENDPOINT_TYPE = 114, "the request was sent to the wrong endpoint type (broker or controller)"
    UNSUPPORTED_ENDPOINT_TYPE = 115, "this endpoint type is not supported"
    UNKNOWN_CONTROLLER_ID = 116, "there is no controller of this id"
    UNKNOWN_SUBSCRIPTION_ID = 117, "the client's metrics subscription is outdated"
    TELEMETRY_TOO_LARGE = 118, "the client's metrics are larger than allowed"
    INVALID_REGISTRATION = 119, "the registration of the broker or controller is not valid"
    TRANSACTION_ABORTABLE = 120, "the transaction must be aborted"
    INVALID_RECORD_STATE = 121, "the record is in another state"
    SHARE_SESSION_NOT_FOUND = 122, "the broker has no such share session", RETRY
    INVALID_SHARE_SESSION_EPOCH = 123, "the share session is at another epoch", RETRY
    FENCED_STATE_EPOCH = 124, "the state epoch of the request is older than that of the share group"
    INVALID_VOTER_KEY = 125, "the voter's key does not match"
    DUPLICATE_VOTER = 126, "the voter is already in the quorum"
    VOTER_NOT_FOUND = 127, "the voter is not in the quorum"
    INVALID_REGULAR_EXPRESSION = 128, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, "the client must start again from its bootstrap servers"
    STREAMS_INVALID_TOPOLOGY = 130, "the streams topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "the streams topology has another epoch"
    STREAMS_TOPOLOGY_FENCED = 132, "the epoch of the streams topology is outdated"
    SHARE_SESSION_LIMIT_REACHED = 133, "the broker has reached its limit of share sessions", RETRY


class KafkaError(Exception):
    """The root of all errors between a client and a broker.

    Attributes:
        code: Kafka's code, or None if no broker has reported the error.
        retriable: the same request may succeed later.
        fatal: the object that raised it cannot continue.
    """

    code: KafkaErrorCode | None = None
    retriable = False
    fatal = False


class BrokerResponseError(KafkaError):
    """A broker answered with an error code; there is one subclass per code, see `error_class`."""

    code: KafkaErrorCode = KafkaErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str | None = None) -> None:
        super().__init__(f"{self.code.name} ({self.code.value}): {message or self.code.message}")
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,)


class RetriableError(KafkaError):
    """The same request may succeed later."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """The request may succeed with new metadata: it was sent to the wrong broker or named a deleted resource."""


class AuthorizationError(BrokerResponseError):
    """The principal is not authorized for this operation."""


class AuthenticationError(KafkaError):
    """The authentication of the connection failed."""

    fatal = True


class SslAuthenticationError(AuthenticationError):
    """TLS failed: a certificate is rejected, or one side uses TLS and the other does not."""


class KafkaTimeoutError(RetriableError, TimeoutError):
    """An operation timed out."""


class BufferExhaustedError(KafkaError, BufferError):
    """The buffer of a producer is full; `await producer.drain()` waits for space."""


class CorruptRecordError(KafkaError):
    """Fetched bytes are no records, or a record batch is damaged. A consumer skips it by a seek to `next_offset`.

    Attributes:
        topic, partition: of the records.
        offset: of the first record that cannot be decoded.
        next_offset: the first offset after the damaged batch according to its header; at least `offset` + 1.
        code: the error code that a broker would return for it.
    """

    def __init__(self, code: int, topic: str, partition: int, offset: int, next_offset: int, reason: str) -> None:
        super().__init__(f"{topic}-{partition} at offset {offset}: {reason}; seek to {next_offset} skips it")
        self.code = KafkaErrorCode(code)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.topic, self.partition, self.offset, self.next_offset, self.reason)


class PoisonRecordError(KafkaError):
    """A key or value cannot be deserialized, or an interceptor rejects the record; `__cause__` is the reason.

    Attributes:
        topic, partition, offset: of the record.
        next_offset: the offset behind it; a consumer skips the record by a seek to it.
    """

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        text = f"{topic}-{partition}: the record at offset {offset} is a poison value; seek to {offset + 1} skips it"
        super().__init__(text)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = offset + 1

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.topic, self.partition, self.offset)


class SchemaError(KafkaError):
    """A schema of a registry cannot be loaded or registered, or data has no valid reference to a schema."""


class MaxPollIntervalExceededError(KafkaError):
    """A consumer did not poll within `max_poll_interval_ms`: it has left its group. The next poll joins again."""


class KafkaConnectionError(InvalidMetadataError, ConnectionError):
    """A connection could not be opened, or was closed before its responses arrived."""


class NoOffsetForPartitionError(KafkaError):
    """A partition has no committed offset and `auto_offset_reset` is "none"; seek, or commit an offset."""


class LogTruncationError(KafkaError):
    """The leader's log does not contain the position of a consumer, and `auto_offset_reset` is "none" (KIP-320)."""


class OffsetRangeError(KafkaError):
    """Records of an offset range cannot be read: retention or a truncation has removed them, or the log ends before.

    Attributes:
        topic, partition, start, end: the range; `end` does not belong to it.
        offset: of the first record that is missing.
    """

    def __init__(self, topic: str, partition: int, start: int, end: int, offset: int, reason: str) -> None:
        super().__init__(f"offsets {start} to {end - 1} of {topic}-{partition} cannot be read at {offset}: {reason}")
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.topic, self.partition, self.start, self.end, self.offset, self.reason)


class ClientUseError(KafkaError, RuntimeError):
    """A client was used before its start, after its close, after a fork, or from another event loop or thread."""


class OutcomeUnknownError(KafkaError):
    """A change was sent, but its response was lost: the broker may have made it. Read its state before you repeat it.

    Attributes:
        made: what a later request has shown: the resource has the new state (True) or not (False); None = not known.
    """

    def __init__(self, message: str, made: bool | None = None) -> None:
        super().__init__(message)
        self.made = made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.made)


class TransactionAbortedError(KafkaError):
    """A transaction is aborted, or must be: none of its records is visible to consumers that read committed ones.

    The producer continues: abort the transaction, or leave its block, and begin another one. `__cause__` is the reason,
    None = the application has aborted it. The error of a producer that cannot continue is ProducerFencedError.
    """


class ClientFailedError(KafkaError):
    """An unexpected exception inside a client, its `__cause__`: the client cannot continue. Close it."""

    fatal = True


class DecodeError(KafkaError, ValueError):
    """Received bytes are not a valid message: an error of the sender.

    Attributes:
        kind: the violated rule; one of `DecodeError.KINDS`.
        position: in bytes from the start of the decoded bytes.
        field: path of the field, such as `topics[3].partitions[0].records`.
    """

    KINDS = (
        "truncated",  # the bytes end inside a field
        "negative length",  # a length below -1
        "null",  # null where the version does not allow it
        "varint",  # an unsigned varint beyond 32 bits or 5 bytes
        "utf-8",  # a string that is not UTF-8
        "string length",  # a string of more than 32,767 bytes
        "array length",  # more elements than the bytes left could hold, or than the limit allows
        "trailing bytes",  # bytes after the end of the message
        "tag count",  # more tagged fields than the limit allows
        "tag order",  # tags not strictly ascending
        "tag size",  # a tagged field longer or shorter than its stated size
        "presence",  # the marker of a nullable struct is neither -1 nor 1
        "version",  # the message has no such version
    )

    def __init__(self, kind: str, detail: str, position: int = 0, field: str = "") -> None:
        super().__init__(f"{kind}: {detail} (at byte {position}{', in ' + field if field else ''})")
        self.kind = kind
        self.detail = detail
        self.position = position
        self.field = field

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.detail, self.position, self.field)


class EncodeError(KafkaError, ValueError):
    """A value does not fit into the version of its message: an error of the caller.

    Attributes:
        field: path of the field.
    """

    def __init__(self, detail: str, field: str = "") -> None:
        super().__init__(f"{field}: {detail}" if field else detail)
        self.detail = detail
        self.field = field

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.detail, self.field)


AUTHENTICATION = frozenset({33, 34, 58})
BASES: dict[int, type[KafkaError]] = {
    KafkaErrorCode.REQUEST_TIMED_OUT: KafkaTimeoutError,
    KafkaErrorCode.NETWORK_EXCEPTION: KafkaConnectionError,
}


def _class_name(code: KafkaErrorCode) -> str:
    name = code.name.removesuffix("_EXCEPTION").removesuffix("_ERROR")
    return "".join(word.capitalize() for word in name.split("_")) + "Error"


def _bases(code: KafkaErrorCode) -> tuple[type[KafkaError], ...]:
    authorization = code.name.endswith("_AUTHORIZATION_FAILED")
    bases: list[type[KafkaError]] = [AuthorizationError if authorization else BrokerResponseError]
    if code in BASES:
        bases.append(BASES[code])
    elif code in AUTHENTICATION:
        bases.append(AuthenticationError)
    elif code.refresh:
        bases.append(InvalidMetadataError)
    elif code.retriable:
        bases.append(RetriableError)
    return tuple(bases)


@cache
def _build(code: KafkaErrorCode) -> type[BrokerResponseError]:
    members = {
        "__module__": __name__,
        "__doc__": f"{code.name} ({code.value}): {code.message}.",
        "code": code,
        "retriable": code.retriable,
        "fatal": code.fatal,
    }
    return type(_class_name(code), _bases(code), members)


MESSAGE_CHARACTERS_MAX = 1000
_KNOWN = frozenset(map(int, KafkaErrorCode))


@cache
def _codes_by_class_name() -> dict[str, KafkaErrorCode]:
    return {_class_name(code): code for code in KafkaErrorCode if code}


def __getattr__(name: str) -> type[BrokerResponseError]:
    """The exception class of a code by name: `errors.OffsetOutOfRangeError`."""
    try:
        return _build(_codes_by_class_name()[name])
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def is_known(code: int) -> bool:
    """Whether Kafka 4.3 has this code."""
    return code in _KNOWN


def error_class(code: int) -> type[BrokerResponseError]:
    """The exception class of a code. Code 0 has none (ValueError); an unknown code is UNKNOWN_SERVER_ERROR."""
    if code == 0:
        raise ValueError("code 0 is not an error")
    return _build(KafkaErrorCode(code) if is_known(code) else KafkaErrorCode.UNKNOWN_SERVER_ERROR)


def error_for(code: int, message: str | None = None) -> BrokerResponseError:
    """The exception for an error code of a broker.

    Args:
        code: the code; a code unknown to Kafka 4.3 is an UnknownServerError with the code in its message.
        message: the error message of the broker, if any.

    Returns:
        The exception, not raised.
    """
    if not is_known(code):
        message = f"unknown error code {code}" + (f": {message}" if message else "")
    return error_class(code)(message)


ACL_OPTIONS = {
    KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
}
GRANT = "`kafkalite acl add -u USER"
GRANTED_TOPICS_MAX = 5


def with_right(code: int, text: str, operation: str, name: str = "", topics: Iterable[str] = ()) -> str:
    """Return the text of a client's error; one of a missing right names the command that grants it.

    Arguments:
        code: of the error, which has the type of the resource.
        text: so far.
        operation: that the client lacks, such as "write" (`docs/authorization.md`).
        name: of the topic, group or transactional id.
        topics: for which the client needs the same right next; the command grants it for the first ones, too.
    """
    if code not in ACL_OPTIONS or GRANT in text:
        return text
    from shlex import quote  # few clients have such errors

    option = ACL_OPTIONS[KafkaErrorCode(code)]
    resource = f"--{option}" if option == "cluster" else f"--{option} {quote(name)}"
    more = "".join(f" --topic {quote(each)}" for each in sorted(topics)[:GRANTED_TOPICS_MAX])
    return f"{text}; {GRANT} -o {operation} {resource}{more}` grants it"


def shorten(message: str) -> str:
    """An error message for a client; a long one is shortened in the middle, so that it fits into the response."""
    if len(message) <= MESSAGE_CHARACTERS_MAX:
        return message
    half = MESSAGE_CHARACTERS_MAX // 2
    return f"{message[:half]} ... {message[-half:]}"
