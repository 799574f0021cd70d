"""The table of error codes, and the exceptions made from it."""

import pickle

import pytest

from kafkalite import errors
from kafkalite.errors import (
    AuthorizationError,
    BrokerResponseError,
    DecodeError,
    EncodeError,
    InvalidMetadataError,
    KafkaConnectionError,
    KafkaError,
    KafkaErrorCode,
    KafkaTimeoutError,
    RetriableError,
    error_class,
    error_for,
    shorten,
)


def test_error_codes_match_kafka_without_gaps() -> None:
    assert [code.value for code in KafkaErrorCode] == list(range(-1, 134))
    assert KafkaErrorCode.NONE == 0
    assert KafkaErrorCode.UNKNOWN_TOPIC_ID == 100
    assert KafkaErrorCode.SHARE_SESSION_LIMIT_REACHED == 133


def test_error_names_match_other_clients() -> None:
    from kio.schema.errors import ErrorCode

    assert {code.value: code.name for code in KafkaErrorCode} == {code.value: code.name.upper() for code in ErrorCode}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python reads its own resources the old way
def test_retriable_flags_match_kafka_python() -> None:
    from kafka import errors as theirs

    known = {
        kind.errno: (issubclass(kind, theirs.RetriableError), issubclass(kind, theirs.InvalidMetadataError))
        for kind in vars(theirs).values()
        if isinstance(kind, type)
        and issubclass(kind, theirs.KafkaError)
        and isinstance(getattr(kind, "errno", None), int)
    }
    known[2] = (True, False)  # CorruptRecordException is retriable in Kafka itself
    ours = {code.value: (code.retriable, code.refresh) for code in KafkaErrorCode if code.value in known}
    assert ours == known
    assert len(ours) > 120


@pytest.mark.parametrize("code", [code for code in KafkaErrorCode if code])
def test_every_error_code_has_an_exception(code: KafkaErrorCode) -> None:
    error = error_for(code, "the broker's words")
    assert error.code is code
    assert (error.retriable, error.fatal) == (code.retriable, code.fatal)
    assert isinstance(error, BrokerResponseError)
    assert isinstance(error, RetriableError) == code.retriable
    assert isinstance(error, InvalidMetadataError) == code.refresh
    assert str(error) == f"{code.name} ({code.value}): the broker's words"
    assert code.message in str(error_for(code))
    assert getattr(errors, type(error).__name__) is type(error)


def test_errors_have_builtin_base_classes() -> None:
    assert isinstance(error_for(KafkaErrorCode.REQUEST_TIMED_OUT), KafkaTimeoutError | TimeoutError)
    assert issubclass(error_class(7), TimeoutError)
    assert issubclass(error_class(13), ConnectionError)
    assert issubclass(error_class(13), KafkaConnectionError)
    assert issubclass(error_class(29), AuthorizationError)
    assert errors.InvalidTopicError.code == 17
    assert errors.OffsetOutOfRangeError is error_class(1)


def test_unknown_error_codes_and_zero() -> None:
    assert type(error_for(999)) is error_class(-1)
    assert "999" in str(error_for(999, "x"))
    with pytest.raises(ValueError, match="code 0"):
        error_for(0)
    with pytest.raises(AttributeError, match="NoSuchError"):
        _ = errors.NoSuchError


@pytest.mark.parametrize(
    "error", [error_for(3, "x"), DecodeError("utf-8", "bad", 7, "topics[1].name"), EncodeError("too long", "a.b")]
)
def test_errors_survive_pickling(error: KafkaError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_long_error_message_is_shortened() -> None:
    assert shorten("Group g not found.") == "Group g not found."
    cut = shorten(f"Group {'x' * 32_767} not found.")
    assert cut.startswith("Group xxx") and cut.endswith("xxx not found.") and len(cut) < 1_010
