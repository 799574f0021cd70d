"""The engine fixture of the record room's tests."""

from tests.unit.records.conftest import engine

__all__ = ["engine"]
