"""Each test module is compiled by one worker first."""

from pathlib import Path

from tests.fix_bytecode import part_of


def test_each_module_is_in_the_part_of_one_worker() -> None:
    modules = [Path(f"tests/test_{number}.py") for number in range(10)]
    parts = [part_of(modules, number, 3) for number in range(3)]
    assert [module for part in parts for module in part] == modules
    assert {len(part) for part in parts} == {3, 4}
