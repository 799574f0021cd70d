"""Plain counters and gauges, and the registry of all metrics of a broker, which is read at scrape.

1. The code that counts holds the counter object: counting looks nothing up.
2. Names follow Prometheus: `kafkalite_bytes_in_total`, units in the name, labels with few values (never text of
   clients).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]


class Counter:
    """A number that only increases."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Add `amount`."""
        self.value += amount


class Gauge:
    """A number that goes up and down, set by its owner or read at scrape.

    Arguments:
        read: called at each scrape; None = `value` is set.
    """

    __slots__ = ("_read", "_value")

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self._read = read
        self._value: float = 0

    @property
    def value(self) -> float:
        """The current number."""
        return self._value if self._read is None else self._read()

    def set(self, value: float) -> None:
        """Replace the number."""
        self._value = value


Metric = Counter | Gauge


@dataclass(slots=True)
class Family:
    """All metrics of one name; they differ in labels."""

    name: str
    help: str
    kind: type[Metric]
    members: dict[Labels, Metric] = field(default_factory=dict)


class Registry:
    """The metrics of one broker."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def counter(self, name: str, help: str, **labels: str) -> Counter:
        """Return the counter of this name and these labels, created by the first call."""
        metric = self._member(name, help, Counter, labels, Counter)
        assert isinstance(metric, Counter)
        return metric

    def gauge(self, name: str, help: str, read: Callable[[], float] | None = None, **labels: str) -> Gauge:
        """Return the gauge of this name and these labels, created by the first call."""
        metric = self._member(name, help, Gauge, labels, lambda: Gauge(read))
        assert isinstance(metric, Gauge)
        return metric

    def walk(self) -> Iterator[Family]:
        """Return every family, by name."""
        for name in sorted(self._families):
            yield self._families[name]

    def _member(
        self, name: str, help: str, kind: type[Metric], labels: dict[str, str], make: Callable[[], Metric]
    ) -> Metric:
        family = self._families.setdefault(name, Family(name, help, kind))
        if family.kind is not kind:
            raise ValueError(f"{name} is a {family.kind.__name__}, not a {kind.__name__}")
        key = tuple(sorted(labels.items()))
        metric = family.members.get(key)
        if metric is None:
            metric = family.members[key] = make()
        return metric
