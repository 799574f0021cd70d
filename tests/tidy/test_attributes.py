"""Classes have at most 12 attributes of their own; the exceptions are listed with reasons, and their numbers fall."""

from pathlib import Path

import pytest

from tests.tidy.attributes import EXCEPTIONS, LIMIT, Exempt, violations
from tests.tidy.planted import plant

ROOT = Path(__file__).resolve().parents[2]
TWELVE = "class Twelve:\n    def __init__(self):\n" + "".join(f"        self.a{at} = {at}\n" for at in range(LIMIT))
THIRTEEN = TWELVE.replace("Twelve", "Thirteen") + "    def open(self):\n        self.file = open()\n"


def test_classes_stay_below_their_limits_of_attributes() -> None:
    assert violations(ROOT, EXCEPTIONS) == []


def test_exceptions_are_above_the_limit_and_have_reasons() -> None:
    assert [each for each in EXCEPTIONS if each.limit <= LIMIT or not each.reason] == []


@pytest.mark.parametrize(
    "text",
    [
        THIRTEEN,
        f"class Thirteen:\n    __slots__ = {tuple(f'a{at}' for at in range(13))}\n",
        TWELVE.replace("Twelve", "Thirteen") + "    def read(self):\n        with f() as (self.file, x): ...\n",
    ],
    ids=["assigned", "slots", "with"],
)
def test_class_with_thirteen_attributes_is_reported(tmp_path: Path, text: str) -> None:
    (violation,) = violations(plant(tmp_path, text), ())
    assert violation == "kafkalite.planted: Thirteen has 13 attributes, allowed are 12"


@pytest.mark.parametrize(
    "text",
    [
        TWELVE,
        TWELVE + "class Derived(Twelve):\n    def __init__(self):\n        self.a0 = self.b = 1\n",
        TWELVE + "    def read(self, other):\n        other.b = self.a1\n        self.a0.b = 1\n",
        "class Record(NamedTuple):\n" + "".join(f"    a{at}: int\n" for at in range(20)),
    ],
    ids=["twelve", "inherited", "attributes of others", "fields"],
)
def test_inherited_attributes_those_of_others_and_fields_do_not_count(tmp_path: Path, text: str) -> None:
    assert violations(plant(tmp_path, text), ()) == []


def test_exception_that_is_higher_than_needed_is_reported(tmp_path: Path) -> None:
    root = plant(tmp_path, THIRTEEN + TWELVE)
    assert violations(root, [Exempt("Thirteen", 13, "")]) == []
    exceptions = [Exempt("Thirteen", 14, ""), Exempt("Twelve", 13, ""), Exempt("Gone", 20, "")]
    assert violations(root, exceptions) == [
        "kafkalite.planted: Thirteen has 13 attributes: lower its exception from 14",
        "kafkalite.planted: Twelve has 12 attributes: remove its exception",
        "Gone: no such class: remove its exception",
    ]


def test_classes_of_one_name_have_an_exception_each(tmp_path: Path) -> None:
    root = plant(tmp_path, THIRTEEN)
    (root / "kafkalite" / "larger.py").write_text(THIRTEEN + "        self.b = 1\n")
    assert violations(root, [Exempt("Thirteen", 13, ""), Exempt("Thirteen", 14, "")]) == []
    assert violations(root, [Exempt("Thirteen", 14, "")]) == [
        "kafkalite.planted: Thirteen has 13 attributes, allowed are 12"
    ]
