"""The outcomes of a call about many resources: a result or an error for each.

Pure.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from kafkalite.errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")


class Outcomes(Mapping[K, V], Generic[K, V]):
    """The result of each resource; reading the result of one that has failed raises its error.

        outcomes = await admin.topics.create("orders", "payments")
        outcomes.check()             # raises the first error, if any
        outcomes["orders"]           # the result, or raises the error of this topic
        outcomes.errors              # only the failures

    An error that is never read causes a RuntimeWarning.

    Arguments:
        ended: the result or the error of each resource.
    """

    __slots__ = ("_ended", "_noted", "_read")

    def __init__(self, ended: Mapping[K, V | KafkaError]) -> None:
        self._ended = dict(ended)
        self._noted = False
        self._read = not any(isinstance(each, KafkaError) for each in self._ended.values())

    def __getitem__(self, key: K) -> V:
        ended = self._ended[key]
        if isinstance(ended, KafkaError):
            self._read = True
            raise ended.with_traceback(None)
        return ended

    def __iter__(self) -> Iterator[K]:
        return iter(self._ended)

    def __len__(self) -> int:
        return len(self._ended)

    def __repr__(self) -> str:
        return f"Outcomes({self._ended!r})"

    def __del__(self, warn: Any = warnings.warn) -> None:
        if not getattr(self, "_read", True):
            failed = ", ".join(f"{key}: {error}" for key, error in self.errors.items())
            warn(f"errors were not read: {failed}; call check() on the outcomes", RuntimeWarning, source=self)

    @property
    def ended(self) -> Mapping[K, V | KafkaError]:
        """The result or the error of each resource. Errors that are only in it count as not read."""
        return self._ended

    @property
    def errors(self) -> dict[K, KafkaError]:
        """The error of each resource that has failed."""
        self._read = True
        return {key: ended for key, ended in self._ended.items() if isinstance(ended, KafkaError)}

    @property
    def results(self) -> dict[K, V]:
        """The result of each resource that has not failed."""
        return {key: ended for key, ended in self._ended.items() if not isinstance(ended, KafkaError)}

    def ignore_errors(self) -> None:
        """Count the errors as read."""
        self._read = True

    def check(self) -> dict[K, V]:
        """Return the results. Raises the first error; its notes name the resource and all other errors."""
        errors = self.errors
        for key, error in errors.items():
            others = [f"{other} has failed, too: {another}" for other, another in errors.items() if other != key]
            if not self._noted:
                self._noted = True
                for note in (f"resource: {key}", *others):
                    error.add_note(note)
            raise error.with_traceback(None)
        return self.results
