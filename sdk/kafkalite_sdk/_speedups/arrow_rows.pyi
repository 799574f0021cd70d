"""Tables that are passed through the Arrow PyCapsule interface."""

from typing import final

__all__ = ["ArrowRows", "import_rows"]

@final
class ArrowRows:
    """Rows of one Arrow array, which become records.

    Attributes:
        count: number of rows.
    """

    def __len__(self) -> int: ...
    @property
    def count(self) -> int: ...
    def check(self, first_row: int = 0, *, require_key: bool = False, size_max: int = ...) -> int:
        """Check all rows; return a bound of their encoded size in bytes.

        Arguments:
            first_row: number of the first row, for errors.
            require_key: reject rows without a key.
            size_max: largest record in bytes, roughly.

        Raises:
            ValueError: a value is null where the schema does not allow it, too large, or no partition; a time exceeds
                64 bits in ms.
            MessageTooLargeError: a record exceeds `size_max`.
        """

def import_rows(table: object) -> list[ArrowRows]:
    """Import the columns key, value, headers, partition and timestamp of a table, or some of them.

    Arguments:
        table: an object with `__arrow_c_stream__` or `__arrow_c_array__`.

    Raises:
        TypeError: a column has another type. ValueError: there is another column, or one twice, or the capsule of the
        table was used before.
    """
