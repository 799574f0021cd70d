from typing import TypeVar, final

from typing_extensions import Buffer

from kafkalite._speedups.codec.encoder import (
    Encoded,
    encode,
    encode_elements,
    encode_parts,
    encode_request,
    encode_request_parts,
)
from kafkalite._speedups.codec.layouts import StructBase

__all__ = [
    "Encoded",
    "RequestHeader",
    "StructBase",
    "decode",
    "encode",
    "encode_elements",
    "encode_parts",
    "encode_request",
    "encode_request_parts",
    "read_request_header",
    "read_response_header",
    "register_request",
    "response_header",
    "set_elements_max",
]

_Decoded = TypeVar("_Decoded", bound=StructBase)

@final
class RequestHeader:
    """The header of a request.

    Attributes:
        body: what follows the header, a slice of the frame.
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
        """Drop the body: a request that is answered later must not keep the memory of its frame; None from then on."""

def read_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a request: version 2 (with tags) where key and version demand it, else version 1.

    Args:
        frame: a request without the size in front.

    Raises:
        DecodeError: the bytes are no header. An unknown key is no error; its header is read as version 1.
    """

def read_response_header(cls: type[StructBase], version: int, frame: Buffer) -> tuple[int, memoryview]:
    """Read the header of an answer of class `cls`; give its correlation id and what follows.

    Raises:
        DecodeError: the bytes are no header.
    """

def response_header(cls: type[StructBase], version: int, correlation_id: int) -> bytes:
    """Make the header of an answer of class `cls`, whose body has this version."""

def decode(cls: type[_Decoded], version: int, body: Buffer, exact: bool = True, elements_max: int = -1) -> _Decoded:
    """Decode a whole message.

    Args:
        cls: the message class.
        version: its version.
        body: the message without header. Fields of records become memoryview slices of it, writable if it is.
        exact: refuse bytes after the message. Kafka ignores them in requests, and librdkafka sends some (Metadata v13).
        elements_max: elements that all arrays of the message may hold together; -1 = as `set_elements_max` says.

    Raises:
        DecodeError: the bytes are no such message, or there is no such version.
    """

def register_request(api_key: int, flexible: int) -> None:
    """Tell from which version on the header of a request has version 2."""

def set_elements_max(count: int) -> None:
    """Set how many array elements one message may hold in all (default 4 million); more are refused on decoding."""
