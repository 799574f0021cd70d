from typing import TypeVar, final

from typing_extensions import Buffer

from kafkalite._speedups.codec.layouts import StructBase

_Decoded = TypeVar("_Decoded", bound=StructBase)

@final
class RequestHeader:
    """The header of a request.

    Attributes:
        body: the bytes behind the header, a slice of the frame.
    """

    @property
    def api_key(self) -> int: ...
    @property
    def api_version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def body(self) -> memoryview: ...
    def release(self) -> None:
        """Set the body to None: a delayed request must not keep its frame in memory."""

def read_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a request: version 2 (with tags) for flexible versions, else version 1.

    Args:
        frame: a request without its size.

    Raises:
        DecodeError: the bytes are not a header. The header of an unknown key is read as version 1.
    """

def read_response_header(cls: type[StructBase], version: int, frame: Buffer) -> tuple[int, memoryview]:
    """Read the header of a response of class `cls`. Returns its correlation id and the bytes behind it.

    Raises:
        DecodeError: the bytes are not a header.
    """

def response_header(cls: type[StructBase], version: int, correlation_id: int) -> bytes:
    """Encode the header of a response of class `cls` in a version."""

def decode(cls: type[_Decoded], version: int, body: Buffer, exact: bool = True, elements_max: int = -1) -> _Decoded:
    """Decode a whole message.

    Args:
        cls: the message class.
        version: its version.
        body: the message without header. Fields of records become memoryview slices of it, writable if it is.
        exact: whether bytes behind the message are an error. Kafka ignores them in requests; librdkafka sends some
            (Metadata v13).
        elements_max: limit of the elements of all arrays together; -1 = that of `set_elements_max`.

    Raises:
        DecodeError: the bytes are not such a message, or the version is unknown.
    """

def register_request(api_key: int, flexible: int) -> None:
    """Register the first flexible version of a request: from it on its header has version 2."""

def set_elements_max(count: int) -> None:
    """Set the limit of array elements in one message (default 4 million); more are an error when decoding."""
