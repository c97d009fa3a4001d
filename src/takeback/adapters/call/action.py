"""An action: a function that acts on the world outside, with the functions that verify and compensate it."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

from takeback.adapters.call.functions import KEY, RECEIPT, Signature, busy_line, signature_of
from takeback.errors import Misuse
from takeback.model.effect import Effect
from takeback.model.functions import refuse_nameless, refuse_odd_name

Function = TypeVar("Function", bound=Callable[..., Any])

RISKS = ("low", "medium", "high")
TIMEOUT = 60.0
UNDO_RETRIES = 4


class IRREVERSIBLE(NamedTuple):
    """There is no way back, and this is why; such a call needs someone who says yes to exactly that."""

    why: str


class MANUAL(NamedTuple):
    """The way back is not ours: these are the steps that a person follows."""

    steps: str


class Compensation(NamedTuple):
    """A second function that compensates the first. It gets the receipt, then the arguments of the call."""

    function: Callable[..., Any]
    signature: Signature
    # Asks whether this has happened; else the action's own probe is asked.
    verify: Callable[..., Any] | None = None
    retries: int = 0
    timeout: float = TIMEOUT
    honours_key: bool = False
    settles_in: float = 0

    @property
    def sure(self) -> bool:
        """Whether calling it again is safe: it can be asked about itself, or twice is once."""
        return self.verify is not None or self.honours_key


WayBack = Compensation | IRREVERSIBLE | MANUAL


class ActionTerms(NamedTuple):
    expects: Callable[..., Any] | None = None
    verify: Callable[..., Any] | None = None
    risk: str = "medium"
    timeout: float = TIMEOUT
    settles_in: float = 0  # seconds after which what is not there will not appear any more
    retries: int = 0
    honours_key: bool = False  # the other side takes a second call with the same key for the first
    certain: tuple[type[BaseException], ...] = ()  # errors which mean that nothing happened
    version: int = 1
    resource: str = ""  # what it is about, with arguments in braces
    # Where a call of it can be made and undone for practice: variables that lead there, or a function that sets it up.
    rehearse: "Mapping[str, str] | Callable[[], Any] | None" = None


class Action:
    """Call it with `run.call`; called by itself it is the plain function."""

    def __init__(self, function: Callable[..., Any], name: str, terms: ActionTerms) -> None:
        self.function = refuse_nameless("An action", function)
        self.terms = terms
        self.signature = signature_of(function, "An action")
        self.module, self.where, self.script = home_of(function)
        self.name = name or f"{self.module}:{function.__qualname__}"
        self.way_back: WayBack | None = None
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def undo(
        self,
        function: Callable[..., Any] | None = None,
        *,
        verify: Callable[..., Any] | None = None,
        retries: int | None = None,
        timeout: float = TIMEOUT,
        honours_key: bool = False,
        settles_in: float = 0,
    ) -> Any:
        """Decorator, with or without options: this function compensates the action. `verify` finds out whether the undo
        happened, for actions whose own result stays visible (a refund beside its payment). An undo not found
        `settles_in` seconds after its call did not happen. takeback retries it, 4 times unless `retries` says
        otherwise, if that is safe: it has its own `verify`, or `honours_key`."""

        def said(chosen: Function) -> Function:
            if self.way_back is not None:
                raise Misuse(f"{self.name} has a way back already.", hint="Give one: undo= or @….undo.")
            sure = verify is not None or honours_key
            often = retries if retries is not None else UNDO_RETRIES if sure else self.terms.retries
            _refuse_odd_numbers(self.name, timeout=timeout, retries=often, settles_in=settles_in)
            signature = signature_of(chosen, "An undo")
            self._refuse_strange(signature, "undo", 1)
            _refuse_keyless(f"The undo of {self.name} honours its key, and has", honours_key, signature)
            self.way_back = Compensation(
                chosen, signature, _probe(verify), often, timeout, honours_key, settles_in
            )
            return chosen

        return said if function is None else said(function)

    def _refuse_strange(self, signature: Signature, what: str, first: int) -> None:
        """Refuse a function with parameters that takeback cannot pass; it always passes `first`."""
        if first and not signature.names:
            raise Misuse(
                f"The {what} of {self.name} takes nothing, and gets the receipt.",
                hint="For example def cancel(receipt, customer): …",
            )
        known = {*self.signature.names, KEY, RECEIPT}
        missing = [one for one in signature.required if one not in (*signature.names[:first], *known)]
        if missing and not self.signature.open:
            raise Misuse(
                f"The {what} of {self.name} needs {missing[0]!r}, which is no argument of the call.",
                hint=f"It can have: {', '.join(sorted(known))}.",
            )

    @cached_property
    def everywhere(self) -> bool:
        """Whether another process can find it: not if it is made inside a function, or in a script that does things
        when it is imported."""
        if "<locals>" in self.function.__qualname__ or self.module == "__main__":
            return False
        return not (self.script and busy_line(self.module, self.where))


def action(
    function: Callable[..., Any] | None = None,
    *,
    expects: Callable[..., Any] | None = None,
    verify: Callable[..., Any] | None = None,
    undo: "Callable[..., Any] | IRREVERSIBLE | MANUAL | None" = None,
    risk: str = "medium",
    timeout: float = TIMEOUT,
    settles_in: float = 0,
    retries: int = 0,
    honours_key: bool = False,
    certain: "tuple[type[BaseException], ...] | type[BaseException]" = (),
    name: str = "",
    version: int = 1,
    resource: str = "",
    rehearse: "Mapping[str, str] | Callable[[], Any] | None" = None,
) -> Any:
    """Make a function an action: `run.call` gives it an idempotency key, records the intent first, and asks the
    outside world if the answer is lost.

    `expects` must hold right before the call. `verify(key=…, …)` asks the outside world and returns the receipt it
    found, or None. `undo` is the function that compensates it, `IRREVERSIBLE(why)` or `MANUAL(steps)`. After `timeout`
    seconds the outcome is in doubt. A call whose result is not found `settles_in` seconds later did not happen. `risk`
    (low, medium, high) is shown to people who look or approve. `retries`: how often takeback calls it again, with the
    same key, if that is safe: `verify` found nothing, or the other side `honours_key`. `certain` names errors which
    mean that nothing happened. `resource` says what it is about, with arguments in braces ("flags/{name}"): undo of an
    earlier call about a thing is refused while a later call about it is in force. `rehearse` is the test endpoint at
    which `takeback rehearse` calls the action and its undo in a process of its own: environment variables that lead
    there, or a function that is called first and may return a context manager."""
    certain = certain if isinstance(certain, tuple) else (certain,)
    terms = ActionTerms(
        expects, _probe(verify), risk, timeout, settles_in, retries, honours_key, certain, version, resource,
        _test_endpoint(rehearse),
    )  # fmt: skip

    def made(chosen: Callable[..., Any]) -> Action:
        found = Action(chosen, name, terms)
        _refuse_unfit(found.name, terms)
        _refuse_keyless(f"{found.name} honours its key, and has", terms.honours_key, found.signature)
        for what, asked in (("verify", terms.verify), ("expects", terms.expects)):
            if asked is not None:
                found._refuse_strange(signature_of(asked, f"A {what}"), what, 0)  # pyright: ignore[reportPrivateUsage]
        if isinstance(undo, (IRREVERSIBLE, MANUAL)):
            _refuse_wordless(found.name, undo)
            found.way_back = undo
        elif undo is not None:
            found.undo(undo)
        return found

    return made if function is None else made(function)


def _probe(verify: Callable[..., Any] | None) -> Callable[..., Any] | None:
    if verify is not None and not callable(verify):
        raise Misuse(f"{verify!r} cannot be asked.", hint="verify= is a function.")
    return verify


def _test_endpoint(rehearse: object) -> Any:
    if rehearse is None or callable(rehearse):
        return rehearse
    if isinstance(rehearse, Mapping):
        found = dict(cast("Mapping[object, object]", rehearse))
        if found and all(isinstance(one, str) for pair in found.items() for one in pair):
            return found
    raise Misuse(
        f"{rehearse!r} names no test endpoint.",
        hint='rehearse= is a function, or variables such as {"BANK_URL": "https://sandbox.example"}.',
    )


def _refuse_wordless(name: str, way: "IRREVERSIBLE | MANUAL") -> None:
    if not isinstance(way[0], str) or not way[0].strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(
            f"{name} does not say {'why it cannot be undone' if isinstance(way, IRREVERSIBLE) else 'what to do'}.",
            hint='For example undo=takeback.IRREVERSIBLE("the mail is read").',
        )


def _refuse_unfit(name: str, terms: ActionTerms) -> None:
    errors = cast("tuple[object, ...]", terms.certain)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in errors):
        raise Misuse(f"{name}: certain= names errors.", hint="For example certain=(ValueError,).")
    refuse_odd_name("An action", name, "billing.charge")
    if terms.risk not in RISKS:
        raise Misuse(f"The risk of {name} cannot be {terms.risk!r}.", hint=f"It is {', '.join(RISKS)}.")
    _refuse_odd_numbers(
        name, timeout=terms.timeout, settles_in=terms.settles_in, retries=terms.retries, version=terms.version
    )
    if terms.expects is not None and not callable(terms.expects):
        raise Misuse(
            f"{name} expects {terms.expects!r}.", hint="expects= is a function that says true or false."
        )
    if terms.retries and not (terms.honours_key or terms.verify):
        raise Misuse(
            f"`{name}` sets `retries=` but neither `verify=` nor `honours_key=True`, so a retry could run twice.",
            hint="Set `honours_key=True` if the other side runs a call with the same key only once, or give a "
            "`verify=` that finds out whether the call happened.",
        )


def _refuse_keyless(who: str, honours_key: object, signature: Signature) -> None:
    if not isinstance(honours_key, bool):
        raise Misuse(f"honours_key cannot be {honours_key!r}.", hint="Say True or False.")
    if honours_key and KEY not in signature.names and not signature.open:
        raise Misuse(
            f"{who} no parameter for one.", hint="Take it (def pay(…, key)) and give it to the other side."
        )


def _refuse_odd_numbers(name: str, **numbers: float) -> None:
    for what, value in numbers.items():
        whole = what in ("retries", "version")
        fits = isinstance(value, int if whole else (int, float)) and value >= 0  # pyright: ignore[reportUnnecessaryIsInstance]
        if not fits or not (value < 1e9 or what == "version") or (what == "timeout" and not value):
            raise Misuse(
                f"{name}: {what} cannot be {value!r}.",
                hint="Give a whole number, 0 or more."
                if whole
                else "Give seconds as a number, for example 2.5.",
            )


def home_of(function: Callable[..., Any]) -> tuple[str, str, bool]:
    """The module that another process would import, the directory that has to be on its path ("" where that is not
    needed), and whether it was run as a script: then it may do things when it is imported."""
    module: str = function.__module__
    if module != "__main__":
        spec = getattr(sys.modules.get(module), "__spec__", None)
        return module, _root(getattr(spec, "origin", None), module), False
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        name = spec.name.removesuffix(".__main__")
        return name, _root(spec.origin, spec.name), True
    file = getattr(main, "__file__", None)
    if not file or not file.endswith(".py"):
        return module, "", True
    directory, base = os.path.split(os.path.abspath(file))
    return base.removesuffix(".py"), directory, True


def _root(origin: str | None, module: str) -> str:
    """Of a package the directory that it lies in."""
    if not origin or not os.path.isabs(origin):
        return ""
    path = os.path.dirname(origin)
    depth = module.count(".") + (os.path.basename(origin) == "__init__.py")
    for _ in range(depth):
        path = os.path.dirname(path)
    return path


# What a call is about: said by its action, or told from the names in its arguments and its result.


_THING = "thing"
# Names of what tells one thing from another.
_TELLING = re.compile(
    r"(^|_)(id|key|name|ref|reference|number|uuid|url|uri|path|email|mail|customer|user|account|target|to|host|"
    r"recipient|resource|bucket|table|order|order_no|slug|sku)$",
    re.IGNORECASE,
)
_MADE_UP = re.compile(r"^[A-Za-z0-9_:-]{12,}$")  # an id that a server chose


def about(action: Action, arguments: dict[str, Any]) -> dict[str, Any]:
    """For the change: the resource that the action names. Calls of any action with the same one know of each other."""
    if not action.terms.resource:
        return {}
    try:
        name = action.terms.resource.format(**arguments)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise Misuse(
            f"resource={action.terms.resource!r} of {action.name} does not fit its arguments: {error}.",
            hint="Name arguments of the call in braces, for example resource='customers/{customer}'.",
        ) from None
    return {_THING: name if "://" in name else f"thing://{name}"}


def thing_of(args: dict[str, Any]) -> str:
    return args.get(_THING, "")


def told_apart(one: Any, other: Any, name: str = "") -> bool:
    """Whether the arguments of two calls of one action, or their results, name two different things."""
    if isinstance(one, dict) and isinstance(other, dict):
        mine, its = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return any(told_apart(mine[key], its[key], key) for key in mine.keys() & its.keys())
    if isinstance(one, (dict, list)) or isinstance(other, (dict, list)) or one == other:
        return False
    if isinstance(one, str) and isinstance(other, str) and _MADE_UP.match(one) and _MADE_UP.match(other):
        return True
    return bool(_TELLING.search(name))


def result_of(effect: Effect) -> Any:
    text = effect.receipt.get("result")
    return json.loads(text) if text is not None else None


def arguments_of(effect: Effect) -> dict[str, Any]:
    return json.loads(effect.change.args["arguments"])
