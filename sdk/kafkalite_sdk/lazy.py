"""Names of a package that are imported on first use (PEP 562), so that importing the package loads nothing."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, origins: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package.

    Arguments:
        package: its `__name__`.
        origins: by name, the module that has it.
    """

    def load(name: str) -> object:
        if name not in origins:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(origins[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
