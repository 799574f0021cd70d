from typing import Any, final

from kafkalite._speedups.codec.layouts import StructBase

@final
class Encoded:
    """Elements of an array, encoded before the message around them. An array may consist of such pieces only.

    Attributes:
        count: of the elements.
    """

    @property
    def count(self) -> int: ...

def encode(message: StructBase, version: int, header: bytes = b"") -> bytes:
    """Encode a whole message into one piece.

    Args:
        message: an object of a message class.
        version: its version.
        header: bytes to put in front.

    Raises:
        EncodeError: a value does not fit this version, or there is no such version.
        OSError: a file region could not be read.
    """

def encode_parts(message: StructBase, version: int, header: bytes = b"") -> list[Any]:
    """Encode a whole message into pieces: `bytes`, and the file regions that its records hold, in order.

    Args and errors as `encode`, but for OSError: regions are handed on unread. A `bytes` object of 16 KiB and more in a
    field of records becomes a piece of its own; other bytes-like objects are copied.
    """

def encode_elements(elements: list[Any], message: type[StructBase], version: int) -> Encoded:
    """Encode some elements of an array, so that a large response is encoded piece by piece.

    Args:
        elements: structs of one class, at least one; each may hold `Encoded` pieces itself.
        message: the class of the message around the array.
        version: of the message. A message of another version refuses the result.

    Raises:
        EncodeError: a value does not fit this version, or the message has no array of such structs.
    """

def encode_request(message: StructBase, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Encode a request with its header of version 1 or 2, without the size in front.

    Raises:
        EncodeError: as `encode`; or the client id does not fit.
    """

def encode_request_parts(message: StructBase, version: int, correlation_id: int, client_id: str | None) -> list[Any]:
    """Encode a request with its header as `encode_request`, into pieces as `encode_parts`.

    Raises:
        EncodeError: as `encode`; or the client id does not fit.
    """
