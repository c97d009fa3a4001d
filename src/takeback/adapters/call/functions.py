"""Call a function that may hang: in its own thread, with a time limit.

During the call an abstract socket bears its name, also while the process is stopped or the thread was abandoned. The
kernel removes the name with the last process that could still send something. So any process on the same machine can
find out whether a call may still happen, without files and without guessing.
"""

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from takeback.errors import ActionMissing, Misuse

if TYPE_CHECKING:
    from inspect import Signature as InspectSignature
    from queue import SimpleQueue


class TimedOut(Exception):
    """It has not come back yet, and may still do something."""


class CallEnded(Exception):
    """It tried to end the process that called it."""


class _Job:
    """One call, shared by the thread that makes it and the one that waits."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.over = threading.Lock()  # held until it is over
        self.over.acquire()
        self.result: Any = None
        self.error: BaseException | None = None


class Hands:
    """Threads that make calls; one that has come back makes the next, one that has not is left to itself."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[_Job]] = []
        self._process = os.getpid()

    def call(
        self,
        function: Callable[..., Any],
        given: tuple[Any, ...],
        named: Mapping[str, Any],
        timeout: float,
        name: str = "",
    ) -> Any:
        """Return or raise what the function does; raise `TimedOut` if it takes longer. With a `name` other processes
        see that the call is running."""
        from contextvars import copy_context

        context, held = copy_context(), _held(name)

        def work() -> Any:
            with held:
                return at_once(context.run(function, *given, **named))

        job = _Job(work)
        self._hand().put(job)
        if not job.over.acquire(timeout=min(timeout, threading.TIMEOUT_MAX)):
            raise TimedOut(f"it did not come back within {timeout:g} s")
        if job.error is None:
            return job.result
        if not isinstance(job.error, Exception):
            # It wants to end the process: that is not for a function which was called.
            raise CallEnded(f"{type(job.error).__name__}: {job.error}") from job.error
        raise job.error

    def _hand(self) -> "SimpleQueue[_Job]":
        if self._process != os.getpid():  # after a fork there are none
            self._idle, self._process = [], os.getpid()
        with suppress(IndexError):
            return self._idle.pop()
        from queue import SimpleQueue

        jobs: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=self._work, args=(jobs,), name="takeback-call", daemon=True).start()
        return jobs

    def _work(self, jobs: "SimpleQueue[_Job]") -> None:
        while True:
            job = jobs.get()
            try:
                job.result = job.work()
            # Its errors go to the caller.
            except BaseException as error:  # noqa: BLE001
                job.error = error
            self._idle.append(jobs)
            job.over.release()


def at_once(result: Any) -> Any:
    """What somebody would have to await, or go through, has not happened: it is no answer."""
    kind = cast("type[object]", type(result))
    if not any(hasattr(kind, name) for name in ("__await__", "gi_frame", "ag_frame")):
        return result
    if close := getattr(result, "close", None):
        close()
    raise TypeError(f"it returned a {kind.__name__}, of which nothing has run; use asyncio.run(…) in it")


def under_way(name: str) -> bool:
    """On this machine, in this network namespace."""
    try:
        with _held(name):
            return False
    except TimedOut:
        return True


def _held(name: str) -> AbstractContextManager[Any]:
    if not name:
        return nullcontext()
    import socket

    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        one.bind(b"\0takeback-call-" + name.encode())
    except OSError as error:
        one.close()
        raise TimedOut("an earlier try of it is still under way") from error
    return one


# A script that somebody ran: whether it can be imported to find its functions, or would do everything again.


def refuse_busy(module: str, where: str) -> None:
    """`ActionMissing` if the script does things at its top level."""
    if line := busy_line(module, where):
        raise ActionMissing(
            f"{_path(module, where)} would do everything again if it were imported (line {line}).",
            hint='Put what it does when it is run below `if __name__ == "__main__":`, or the actions into a module '
            "of their own; nothing was called.",
        )


def busy_line(module: str, where: str) -> int:
    """Of the first thing that it would do; 0: nothing."""
    import ast

    try:
        with open(_path(module, where), "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return 0  # importing it says what is wrong
    return next((node.lineno for node in tree.body if _acts(node)), 0)


def _path(module: str, where: str) -> str:
    return os.path.join(where, *module.split(".")) + ".py"


def _acts(node: object) -> bool:
    import ast

    quiet = (
        ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
        ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Pass,
    )  # fmt: skip
    if isinstance(node, quiet):
        return False
    if isinstance(node, ast.Expr):
        return not (isinstance(node.value, ast.Constant) or _is_declaration(node.value))
    if isinstance(node, ast.If):
        test = node.test
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__":
            return False
        return any(_acts(one) for one in (*node.body, *node.orelse))
    if isinstance(node, ast.Try):
        return any(_acts(one) for one in (*node.body, *node.orelse, *node.finalbody))
    return True


def _is_declaration(value: object) -> bool:
    """`pay.undo(give_back)`, `sys.path.insert(…)`."""
    import ast

    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    return value.func.attr == "undo" or ast.unparse(value.func).startswith("sys.path.")


# What a function takes, and its arguments as JSON.


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
