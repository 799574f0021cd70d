from typing import Generic, TypeVar

from typing_extensions import Buffer

from kafkalite._speedups.codec.layouts import StructBase

_Decoded = TypeVar("_Decoded", bound=StructBase)

class IncrementalDecoder(Generic[_Decoded]):
    """Decodes a whole message like `decoder.decode`, in steps of one field or array element.

    Args:
        cls, version, exact, elements_max: as those of `decoder.decode`.
        body: the message without header; it must not change until the message is complete.

    Attributes:
        message: the decoded message; None until it is complete.

    Raises:
        DecodeError: the version is unknown.
    """

    def __init__(self, cls: type[_Decoded], version: int, body: Buffer, exact: bool, elements_max: int) -> None: ...
    @property
    def message(self) -> _Decoded | None: ...
    def advance(self, steps: int) -> bool:
        """Take up to `steps` steps, fewer if they read more than 64 KiB. Returns whether the message is complete.

        Raises:
            DecodeError: the bytes are not such a message.
        """
