"""What a function takes, and its arguments as JSON."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import Misuse

if TYPE_CHECKING:
    from inspect import Signature as InspectSignature

KEY = "key"
RECEIPT = "receipt"


class Signature(NamedTuple):
    """The names of the parameters, in order."""

    names: tuple[str, ...]
    required: tuple[str, ...]
    open: bool  # takes any further name


@lru_cache(maxsize=256)
def signature_of(function: Callable[..., Any], who: str) -> Signature:
    import inspect

    if not callable(function):
        raise Misuse(f"{who} is a function, not {function!r}.", hint="Put @takeback.action above a def.")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise Misuse(
            f"{who} is a plain function, and {function.__name__} is not.",
            hint="Wrap an async one: def call(…): return asyncio.run(…).",
        )
    names: list[str] = []
    required: list[str] = []
    takes_any = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise Misuse(
                f"{who} has named parameters only, and {function.__name__} takes {parameter}.",
                hint="They are kept by name, so that a later version can still be called with them.",
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
            continue
        names.append(parameter.name)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return Signature(tuple(names), tuple(required), takes_any)


def bound(function: Callable[..., Any], given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, with those that have a usual value; the key is not one of them."""
    signature, rest = _without_key(function)
    try:
        found = signature.bind(*given, **named)
    except TypeError as error:
        raise Misuse(
            f"{function.__name__} cannot be called so: {error}.",
            hint=f"It is {function.__name__}{signature}.",
        ) from None
    found.apply_defaults()
    arguments: dict[str, Any] = dict(found.arguments)
    return arguments | arguments.pop(rest) if rest else arguments


@lru_cache(maxsize=256)
def _without_key(function: Callable[..., Any]) -> "tuple[InspectSignature, str]":
    """How it is called, and the name of what takes any further argument."""
    import inspect

    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if one.name != KEY]
    rest = next((one.name for one in parameters if one.kind is one.VAR_KEYWORD), "")
    return signature.replace(parameters=parameters), rest


def fitting(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is offered, what the function takes."""
    signature = signature_of(function, "A probe")
    if signature.open:
        return dict(offered)
    return {name: value for name, value in offered.items() if name in signature.names}
