"""Signatures of clients that people can read in `help` and in notebooks; type checkers read the annotations."""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., None])


def readable(options: str) -> Callable[[F], F]:
    """Give `__init__` a signature of names and defaults, whose last parameter names the type of the options.

    The one of Python shows an option type as `*<class ...>`, and expands the types of serializers to a line each.

    Arguments:
        options: name of the TypedDict with the keyword arguments, as `help` finds it.
    """

    def with_signature(init: F) -> F:
        code = init.__code__
        positional, keywords = code.co_varnames[: code.co_argcount], code.co_varnames[code.co_argcount :]
        keywords = keywords[: code.co_kwonlyargcount]
        defaults = init.__kwdefaults__ or {}
        init.__signature__ = Signature(  # type: ignore[attr-defined]
            [
                *(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in positional),
                *(Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name]) for name in keywords),
                Parameter("options", Parameter.VAR_KEYWORD, annotation=options),
            ]
        )
        return init

    return with_signature
