"""Every message in every version, on random values, against kio, an independent codec made from Kafka's own files."""

import os
import random

import pytest

from kafkalite._speedups import codec
from kafkalite.protocol.schema import Message
from tests.oracles import codec as oracle
from tests.oracles.codec import layout_of
from tests.unit.protocol.kio_twin import kio_class, kio_decode, kio_encode, limits, to_kio
from tests.unit.protocol.values import KAFKAS_CASES, ids, random_message, seed

EXAMPLES = int(os.environ.get("KAFKALITE_KIO_EXAMPLES", "12"))


def check(cls: type[Message], version: int, rng: random.Random) -> None:
    layout = layout_of(cls, version)
    assert layout is not None
    theirs = kio_class(cls, version)
    ours = limits(layout, theirs, random_message(rng, cls, version))
    entity = to_kio(layout, theirs, ours)
    encoded = codec.encode(ours, version)
    assert encoded == kio_encode(theirs, entity)
    assert kio_decode(theirs, encoded) == entity
    decoded = codec.decode(cls, version, encoded)
    assert decoded == ours
    assert oracle.encode(ours, version) == encoded
    assert oracle.decode(cls, version, encoded) == ours
    assert codec.encode(decoded, version) == encoded


@pytest.mark.parametrize(("cls", "version"), KAFKAS_CASES, ids=ids(KAFKAS_CASES))
def test_messages_have_the_bytes_and_values_of_kio(cls: type[Message], version: int) -> None:
    rng = random.Random(f"{seed()} {cls.__name__} {version}")
    for _ in range(EXAMPLES):
        check(cls, version, rng)


def test_every_version_of_kio_is_declared() -> None:
    """A version that kio (Kafka 4.3) has and we lack would go unnoticed otherwise; InitProducerId v6 is unstable."""
    from kio.index import schema_name_map
    from kio.schema.index import api_key_map

    ours = {(cls.api_key, version) for cls, version in KAFKAS_CASES}  # type: ignore[attr-defined]
    keys = {key for key, _ in ours}
    theirs = {(key, version) for key in keys for version in schema_name_map[api_key_map[key]]}
    assert theirs - ours == {(22, 6)}
    assert ours - theirs == set()
