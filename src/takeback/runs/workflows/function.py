"""A durable workflow: a function that is called again, with what it did before answered from the journal."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from takeback.errors import Misuse
from takeback.model.functions import as_json, refuse_nameless, refuse_odd_name
from takeback.runs.commands.request import refuse_keep

if TYPE_CHECKING:
    import inspect

ON_FAILURE = ("undo", "leave")
STEP_SECONDS = 3600
_ASKED = json.JSONEncoder(sort_keys=True, allow_nan=False)


class Workflow(NamedTuple):
    """What `@takeback.workflow` makes of a function; found by its name, so that another process can continue it."""

    name: str
    function: Callable[..., Any]
    on_failure: str = "undo"
    step_seconds: float = STEP_SECONDS

    def __call__(self, run: Any, *args: Any, **kwargs: Any) -> Any:
        return self.function(run, *args, **kwargs)


@overload
def workflow(function: Callable[..., Any], /) -> Workflow: ...
@overload
def workflow(
    *, name: str = "", on_failure: str = "undo", step_timeout: float = STEP_SECONDS
) -> Callable[[Callable[..., Any]], Workflow]: ...
def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    on_failure: str = "undo",
    step_timeout: float = STEP_SECONDS,
) -> "Workflow | Callable[[Callable[..., Any]], Workflow]":
    """Make `def fn(run, …)` a durable workflow, known by `module:function` or by `name`. A failed run is undone, unless
    `on_failure` is "leave". After `step_timeout` seconds without a step its worker counts as stuck, and another one
    continues the run."""
    refuse_keep(on_failure)
    if on_failure not in ON_FAILURE:
        raise Misuse(f"A workflow cannot end with {on_failure!r}.", hint='Say on_failure="undo" or "leave".')
    if not isinstance(step_timeout, (int, float)) or not step_timeout > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(f"A step cannot take {step_timeout!r} seconds.", hint="For example step_timeout=600.")

    def made(function: Callable[..., Any]) -> Workflow:
        refuse_nameless("A workflow", function)
        known = name or f"{function.__module__}:{function.__qualname__}"
        refuse_odd_name("A workflow", known, "deploy")
        _refuse_unfit(known, function)
        return Workflow(known, function, on_failure, float(step_timeout))

    return made(function) if function is not None else made


def refuse_unfindable(one: object) -> Workflow:
    """A worker must be able to find it in another process."""
    if not isinstance(one, Workflow):
        raise Misuse(f"{one!r} is no workflow.", hint="Write @takeback.workflow over the function.")
    module, _, rest = one.name.partition(":")
    if module == "__main__" or "<locals>" in rest:
        where = "the program that was started" if module == "__main__" else "another function"
        raise Misuse(
            f"The workflow {rest} is defined in {where}, where no worker finds it.",
            hint='Put it at the top of a module of its own, or give it a name: @takeback.workflow(name="deploy").',
        )
    return one


def found_in(module: Any) -> dict[str, Workflow]:
    """By name; what the module has imported from others counts as well."""
    known: dict[str, Workflow] = {}
    for one in tuple(getattr(module, name) for name in dir(module)):
        if isinstance(one, Workflow):
            if one.name in known and known[one.name] is not one:
                raise Misuse(
                    f"Two workflows of {module.__name__} have the name {one.name!r}.",
                    hint="Rename one of them.",
                )
            known[one.name] = one
    return known


# Arguments and results.


def arguments_of(one: Workflow, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """By the names that the function has for them, as JSON text; refused at once if they do not fit it."""
    try:
        bound = _signature(one.function).bind(None, *args, **kwargs)
    except TypeError as error:
        raise Misuse(
            f"{one.name} cannot be called like this: {error}.", hint="Look at its signature."
        ) from None
    given = dict(list(bound.arguments.items())[1:])
    return as_json(given, f"What {one.name} is called with")


def call_with(one: Workflow, run: Any, arguments: str) -> Callable[[], Any]:
    """The call, ready to be made; Misuse if what was submitted no longer fits the function."""
    import inspect

    signature = _signature(one.function)
    given: dict[str, Any] = json.loads(arguments)
    first, *others = signature.parameters.values()
    unknown = given.keys() - {parameter.name for parameter in others}
    missing = [
        parameter.name
        for parameter in others
        if parameter.name not in given
        and parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    if unknown or missing:
        what = f"no longer takes {sorted(unknown)[0]!r}" if unknown else f"now needs {missing[0]!r}"
        raise Misuse(
            f"The workflow {one.name} was submitted with other arguments than its function has: it {what}.",
            hint="Give the function the parameters back (with a default, new ones do no harm), or undo the run.",
        )
    bound = inspect.BoundArguments(signature, {})  # pyright: ignore[reportArgumentType]
    for parameter in (first, *others):
        if parameter is first:
            bound.arguments[parameter.name] = run
        elif parameter.name in given:
            value = given[parameter.name]
            bound.arguments[parameter.name] = (
                tuple(value) if parameter.kind is inspect.Parameter.VAR_POSITIONAL else value
            )
    args, kwargs = bound.args, bound.kwargs
    return lambda: one.function(*args, **kwargs)


def _signature(function: Callable[..., Any]) -> "inspect.Signature":
    import inspect

    return inspect.signature(function)


def _refuse_unfit(name: str, function: Callable[..., Any]) -> None:
    import inspect

    # Its steps would be asked for in whatever order somebody drives it, or not at all.
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(function) for is_kind in kinds):
        raise Misuse(
            f"The workflow {name} is no plain function.",
            hint="Write it with def, without yield; call asyncio.run(…) inside run.remember where you need it.",
        )

    first = next(iter(_signature(function).parameters.values()), None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise Misuse(
            f"The workflow {name} takes no run.", hint="Its first parameter is the run: def deploy(run, …)."
        )


def digest_of(*asked: Any) -> str:
    """A digest that distinguishes steps without keeping their arguments."""
    return hashlib.sha256(_ASKED.encode(asked).encode()).hexdigest()[:16]
