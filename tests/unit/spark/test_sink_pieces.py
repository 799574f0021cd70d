"""Rows are sent in pieces that fit into the buffer of the producer, whatever the sizes of single rows are."""

import pyarrow
import pytest
from pyspark_kafkalite.pieces import TABLE_BYTES, pieces

LARGE = 900_000


@pytest.mark.parametrize(
    "sizes",
    [
        [LARGE] * 45 + [10] * 9955,
        [10] * 9955 + [LARGE] * 45,
        [10] * 100_000,
        [2 * TABLE_BYTES, 1, 2 * TABLE_BYTES],
        [1],
    ],
)
def test_no_piece_has_more_than_its_bytes_unless_it_is_one_row(sizes: list[int]) -> None:
    keys = pyarrow.array(range(len(sizes)), pyarrow.int64())
    headers = pyarrow.array([[{"key": "h", "value": b"x"}]] * len(sizes))
    batch = pyarrow.record_batch({"key": keys, "value": [bytes(size) for size in sizes], "headers": headers})
    found = list(pieces(batch))
    assert all(each.nbytes <= TABLE_BYTES or each.num_rows == 1 for each in found)
    assert [key for each in found for key in each.column("key").to_pylist()] == list(range(len(sizes)))
    assert len(found) <= 2 * batch.nbytes // TABLE_BYTES + 2 * len(sizes).bit_length()


def test_batch_without_rows_is_one_piece_whatever_it_refers_to() -> None:
    values = pyarrow.array([bytes(2 * TABLE_BYTES)]).dictionary_encode()
    batch = pyarrow.record_batch({"value": values}).slice(0, 0)
    assert batch.nbytes > TABLE_BYTES
    assert [each.num_rows for each in pieces(batch)] == [0]
