"""Random ACL sets and questions: `StandardAuthorizer` and a naive model have the same answers, also after changes."""

from collections.abc import Callable
from random import Random

import pytest

from kafkalite.state.authorizer import standard
from kafkalite.state.authorizer.acls import AclBinding, ResourcePattern
from kafkalite.state.authorizer.patterns import PatternTable
from kafkalite.state.authorizer.standard import StandardAuthorizer
from tests.kit.naive_acls import naive_any, naive_decision, random_binding, random_question
from tests.kit.seeds import chosen_seed, first_seed

SETS = 10_000
QUESTIONS = 10  # per set
SETS_PER_AUTHORIZER = 50  # each set is made of the one before, so that kept decisions are out of date


class Model:
    """An authorizer and the list of its ACLs."""

    def __init__(self, *, allow_everyone: bool) -> None:
        self.authorizer = StandardAuthorizer(allow_everyone=allow_everyone)
        self.bindings: set[AclBinding] = set()

    def change(self, random: Random) -> None:
        """Add an ACL, or remove some."""
        if len(self.bindings) > random.randrange(30):
            self._apply(
                self.bindings - set(random.sample(sorted(self.bindings), random.randint(0, len(self.bindings) // 2)))
            )
        self._apply(self.bindings | {random_binding(random) for _ in range(random.randint(1, 3))})

    def _apply(self, after: set[AclBinding]) -> None:
        for pattern in {pattern for pattern, _ in after ^ self.bindings}:
            self.authorizer.replace(pattern, [acl for each, acl in after if each == pattern])
        self.bindings = after

    def compare(self, random: Random) -> None:
        """Ask a random question, raising AssertionError for a wrong answer."""
        question = random_question(random)
        everyone = self.authorizer.allow_everyone
        decision = self.authorizer.decide(*question)
        assert decision.allowed == naive_decision(self.bindings, question, allow_everyone=everyone), question
        if decision.acl is not None:
            assert decision.acl in self.bindings
        if random.random() < 0.9:
            return
        some = self.authorizer.allows_any(*question[:4])
        assert some == naive_any(self.bindings, question, allow_everyone=everyone), question


def compare(seed: int, sets: int) -> None:
    """Compare the answers for a number of ACL sets."""
    random = Random(seed)
    for index in range(sets):
        if index % SETS_PER_AUTHORIZER == 0:
            model = Model(allow_everyone=random.random() < 0.3)
        model.change(random)
        try:
            for _ in range(QUESTIONS):
                model.compare(random)
        except AssertionError:
            print(f"KAFKALITE_SEED={seed}, set {index}: {sorted(model.bindings)}")
            raise


def test_random_acls_equal_the_naive_model() -> None:
    compare(chosen_seed(), SETS)


def ignore_denied_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = standard.Rights.matching

    def planted(self: standard.Rights, *args: object) -> object:
        for pattern, (allowed, denied) in honest(self, *args):  # type: ignore[arg-type]
            yield pattern, (allowed, 0 if pattern.pattern_type.name == "PREFIXED" else denied)

    monkeypatch.setattr(standard.Rights, "matching", planted)


def keep_decisions_across_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandardAuthorizer, "_forget", lambda _self: None)


def leave_lengths_of_removed_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(self: PatternTable[object], pattern: ResourcePattern) -> None:
        self._lengths.pop(pattern.resource_type, None)  # those of other patterns, too
        self.values.pop(pattern, None)

    monkeypatch.setattr(PatternTable, "remove", planted)


@pytest.mark.parametrize(
    "plant", [ignore_denied_prefixes, keep_decisions_across_versions, leave_lengths_of_removed_prefixes]
)
def test_random_acls_find_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        compare(first_seed(), 500)
