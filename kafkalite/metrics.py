"""Plain counters, gauges and histograms, and the registry that a page walks when it is asked.

Laws: whoever counts holds the object and adds to it; nothing is looked up on the way. Names follow
Prometheus: `kafkalite_bytes_in_total`, units in the name, labels with few values (never a client's text).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]

# Seconds: from below one request on the loop to beyond the longest wait that a client asks for.
LATENCY_BOUNDS_S = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    30.0,
)


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Count `amount` more."""
        self.value += amount


class Gauge:
    """A number that goes up and down; set by its owner or read from it at the walk.

    Arguments:
        read: called at each walk; None = `value` is set.
    """

    __slots__ = ("_read", "_value")

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self._read = read
        self._value: float = 0

    @property
    def value(self) -> float:
        """The number now."""
        return self._value if self._read is None else self._read()

    def set(self, value: float) -> None:
        """Replace the number."""
        self._value = value


class Histogram:
    """How many observations fell below each bound.

    Arguments:
        bounds: upper bounds, rising; one more bucket holds what is above the last.
    """

    __slots__ = ("bounds", "buckets", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        if list(bounds) != sorted(set(bounds)):
            raise ValueError(f"the bounds of a histogram rise, {bounds} do not")
        self.bounds = tuple(bounds)
        self.buckets = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation; a value equal to a bound belongs to that bound's bucket."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self.buckets)


Metric = Counter | Gauge | Histogram


@dataclass(slots=True)
class Family:
    """All metrics of one name: they differ by labels only."""

    name: str
    help: str
    kind: type[Metric]
    members: dict[Labels, Metric] = field(default_factory=dict)


class Registry:
    """The metrics of one broker."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def counter(self, name: str, help: str, **labels: str) -> Counter:
        """The counter of that name and these labels, made at the first call."""
        metric = self._member(name, help, Counter, labels, Counter)
        assert isinstance(metric, Counter)
        return metric

    def gauge(self, name: str, help: str, read: Callable[[], float] | None = None, **labels: str) -> Gauge:
        """The gauge of that name and these labels, made at the first call."""
        metric = self._member(name, help, Gauge, labels, lambda: Gauge(read))
        assert isinstance(metric, Gauge)
        return metric

    def histogram(self, name: str, help: str, bounds: Sequence[float] = LATENCY_BOUNDS_S, **labels: str) -> Histogram:
        """The histogram of that name and these labels, made at the first call."""
        metric = self._member(name, help, Histogram, labels, lambda: Histogram(bounds))
        assert isinstance(metric, Histogram)
        return metric

    def drop(self, **labels: str) -> None:
        """Forget every metric that carries all these labels, such as those of a deleted topic."""
        gone = set(labels.items())
        for family in self._families.values():
            for key in [key for key in family.members if gone <= set(key)]:
                del family.members[key]

    def walk(self) -> Iterator[Family]:
        """Every family, by name."""
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
