"""Frees large objects in steps: freeing 100,000 structs, or a set of as many tuples, takes 10 to 25 ms at once."""

from typing import Any

from kafkalite._speedups.codec import StructBase
from kafkalite.slicing import Steps

FREED_AT_ONCE = 256


def empty_request(request: StructBase) -> Steps:
    """Remove the elements of all arrays of a request that is no longer used, a few in each step."""
    for name in arrays_of(request):
        yield from empty_in_steps(getattr(request, name))


def empty_in_steps(elements: "list[Any] | set[Any] | dict[Any, Any]") -> Steps:
    """Remove all elements of a container in steps; large arrays of the elements of a list are emptied, too."""
    while len(elements) > FREED_AT_ONCE:
        if isinstance(elements, list):
            last = elements[-FREED_AT_ONCE:]
            del elements[-FREED_AT_ONCE:]
            yield from empty_arrays(last)
        else:
            remove = elements.popitem if isinstance(elements, dict) else elements.pop
            for _ in range(FREED_AT_ONCE):
                remove()
        yield
    if isinstance(elements, list):
        yield from empty_arrays(elements)


def empty_arrays(structs: list[Any]) -> Steps:
    """Empty the large arrays of structs; other elements have none."""
    names = arrays_of(structs[0]) if structs and isinstance(structs[0], StructBase) else ()
    for name in names:
        for struct in structs:
            array = getattr(struct, name)
            if array is not None and len(array) > FREED_AT_ONCE:
                yield from empty_in_steps(array)


def arrays_of(struct: StructBase) -> list[str]:
    """The names of the fields that hold an array here."""
    fields: tuple[Any, ...] = type(struct).__fields__  # type: ignore[attr-defined]
    return [field.name for field in fields if isinstance(getattr(struct, field.name), list)]
