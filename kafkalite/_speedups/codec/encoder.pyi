from typing import Any, final

from kafkalite._speedups.codec.layouts import StructBase

@final
class Encoded:
    """Encoded elements of an array, for a message that is encoded later. An array that has such objects has no others.

    Attributes:
        count: number of elements.
    """

    @property
    def count(self) -> int: ...

def encode(message: StructBase, version: int, header: bytes = b"") -> bytes:
    """Encode a message into one bytes object.

    Args:
        message: an object of a message class.
        version: its version.
        header: bytes in front of the message.

    Raises:
        EncodeError: a value does not fit into this version, or the version is unknown.
        OSError: a file region could not be read.
    """

def encode_parts(message: StructBase, version: int, header: bytes = b"") -> list[Any]:
    """Encode a message into parts: `bytes`, and the file regions of its records, in order.

    Args and errors as `encode`, without OSError: regions are not read. A `bytes` object of 16 KiB or more in a records
    field becomes a part of its own; other bytes-like objects are copied.
    """

def encode_elements(elements: list[Any], message: type[StructBase], version: int) -> Encoded:
    """Encode some elements of an array, so that a large response is encoded in slices.

    Args:
        elements: structs of one class, at least one; each may hold `Encoded` pieces itself.
        message: the class of the message around the array.
        version: of the message. Encoding the result in a message of another version fails.

    Raises:
        EncodeError: a value does not fit into this version, or the message has no array of such structs.
    """

def encode_request(message: StructBase, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Encode a request with its header of version 1 or 2, without its size.

    Raises:
        EncodeError: as `encode`; or the client id does not fit.
    """

def encode_request_parts(message: StructBase, version: int, correlation_id: int, client_id: str | None) -> list[Any]:
    """Encode a request with its header as `encode_request`, into parts as `encode_parts`.

    Raises:
        EncodeError: as `encode`; or the client id does not fit.
    """
