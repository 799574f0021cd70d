"""What a declaration of a message may not do."""

import pytest

from kafkalite.protocol.schema import Request, Struct, int32, string


def test_field_with_the_name_of_a_message_attribute_is_rejected() -> None:
    """FindCoordinator has a field `key`; the number of the API once had that name, and the field could not be set."""
    with pytest.raises(TypeError, match=r"Clash\.versions would hide"):

        class Clash(Request, key=30_000, versions=(0, 0)):
            versions: int32  # type: ignore[assignment]


def test_each_struct_has_its_own_fields() -> None:
    class Fine(Struct):
        key: string
        api_key: int32

    assert Fine(key="k", api_key=3).key == "k"
