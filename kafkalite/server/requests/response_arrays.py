"""Arrays of large responses, encoded piece by piece while their elements are collected.

A response of 100,000 structs takes tens of milliseconds to encode and as long to free. Pieces spread both over the
steps of the generator that builds the response; the elements of a small array stay structs.
"""

from typing import Any

from kafkalite._speedups.codec import Encoded, StructBase, encode_elements

PIECE_STRUCTS = 256


class ResponseArray:
    """Collects the elements of one array of a response.

    Arguments:
        message: the class of the response.
        version: of the response.
    """

    __slots__ = ("_message", "_pending", "_pieces", "_structs", "_version")

    def __init__(self, message: type[Any], version: int) -> None:
        self._message = message
        self._version = version
        self._pending: list[StructBase] = []
        self._pieces: list[Encoded] = []
        self._structs = 0

    def like(self) -> "ResponseArray":
        """Return an empty collector for another array of the response."""
        return ResponseArray(self._message, self._version)

    def add(self, element: StructBase, structs: int = 1) -> None:
        """Append an element; `structs`: number of its structs, without those in `Encoded` pieces."""
        self._pending.append(element)
        self._structs += structs
        if self._structs >= PIECE_STRUCTS:
            self._encode()

    def finish(self) -> list[Any]:
        """Return the array: all elements as structs if they are few, else all as `Encoded` pieces."""
        return self.encode_pieces() if self._pieces else self._pending

    def encode_pieces(self) -> list[Any]:
        """Return the array as `Encoded` pieces."""
        if self._pending:
            self._encode()
        return self._pieces

    def _encode(self) -> None:
        self._pieces.append(encode_elements(self._pending, self._message, self._version))
        self._pending, self._structs = [], 0
