"""Checks: what may be asked of a change before it is made, and after.

A check looks at what is staged and says nothing (yes) or a sentence (no). `before` checks run while no one can see the
change yet, so a no costs nothing; `after` checks run on the changed world, and a no undoes it.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from takeback.errors import Misuse, ValidationFailed, VerifyFailed
from takeback.model.change import Staged
from takeback.model.resource import SCHEME, display, path_of

BEFORE = "before"
AFTER = "after"
COMMAND_SECONDS = 30


class Check(NamedTuple):
    name: str
    stage: str  # before · after
    call: Callable[[Staged], str | None]  # None: yes; a sentence: no, and why
    named: bool = False  # looks at the staged file by its name, from another process


def run_checks(checks: Iterable[Check], staged: Staged, stage: str = BEFORE) -> None:
    """Ask the checks of this stage, in order; the first no is raised."""
    for check in checks:
        if check.stage != stage:
            continue
        why = check.call(staged)
        if why is None:
            continue
        where = display(staged.resource)
        if stage == AFTER:
            raise VerifyFailed(
                f"The check {check.name!r} failed after {where} was changed: {why}.",
                hint="The change was undone. Fix what the check names, then try again.",
            )
        raise ValidationFailed(
            f"The check {check.name!r} failed for {where}: {why}.",
            hint="Nothing was changed. Fix what the check names, then try again.",
        )


def needs_name(checks: Iterable[Check]) -> bool:
    """Whether one of them must find the staged file under a name of its own."""
    return any(check.named for check in checks)


# -- syntactic


def json() -> Check:
    """The content must be JSON, without NaN and without duplicate keys."""
    return Check("json", BEFORE, _json_trouble)


def yaml() -> Check:
    """The content must be YAML; several documents in one file are fine."""
    return Check("yaml", BEFORE, _yaml_trouble)


def toml() -> Check:
    return Check("toml", BEFORE, _toml_trouble)


def python() -> Check:
    """The content must compile as Python."""
    return Check("python", BEFORE, _python_trouble)


def command(line: str, *, timeout: float = COMMAND_SECONDS, name: str = "") -> Check:
    """A program must end with 0. `{staged}` is the path of the staged file, `{target}` its final path.

    There is no shell: pipes, variables and wildcards mean nothing. At the time limit the program is killed
    with everything it started.
    """
    from takeback.policy.patterns import split, trouble

    words = split(line, timeout)

    def call(staged: Staged) -> str | None:
        return trouble(words, staged.path, target_of(staged), timeout)

    return Check(name or line, BEFORE, call, named=any("{staged}" in word for word in words))


# -- semantic and policy


def check(ask: Callable[..., Any], *, name: str = "") -> Check:
    """Your own function, with the staged file or without arguments. None or True means yes; False, text or an exception
    no."""
    return Check(name or _name_of(ask), BEFORE, _asking(ask))


def no_plaintext_secret() -> Check:
    """No private key, no well-known token, no value in clear for a name such as password or api_key; placeholders and
    references are fine. A small set of rules: it can miss one."""
    from takeback.policy.secrets import first_secret, is_program

    def call(staged: Staged) -> str | None:
        found = first_secret(_lines(staged), is_program(target_of(staged)))
        return None if found is None else f"line {found.line} holds what looks like {found.kind}"

    return Check("no plaintext secret", BEFORE, call)


def not_world_writable() -> Check:
    def call(staged: Staged) -> str | None:
        return f"mode {staged.mode & 0o7777:04o} lets everyone write to it" if staged.mode & 0o002 else None

    return Check("not world-writable", BEFORE, call)


def max_size(limit: int) -> Check:
    if limit < 0:
        raise Misuse(f"A size limit of {limit} bytes cannot be kept.", hint="Give a number of bytes from 0.")

    def call(staged: Staged) -> str | None:
        size = len(staged.content) if staged.content is not None else os.stat(staged.path).st_size
        return f"{size} bytes is more than {limit}" if size > limit else None

    return Check(f"at most {limit} bytes", BEFORE, call)


# -- functional


def after(
    ask: Callable[..., Any] | str | Check, *, name: str = "", timeout: float = COMMAND_SECONDS
) -> Check:
    """A command line, a function or another check, to run after the change. If it says no, the change is taken back."""
    if isinstance(ask, Check):
        return ask._replace(stage=AFTER, name=name or ask.name, named=False)
    if isinstance(ask, str):
        return command(ask, timeout=timeout, name=name)._replace(stage=AFTER, named=False)
    return Check(name or _name_of(ask), AFTER, _within(_asking(ask), timeout))


# -- how they look


def target_of(staged: Staged) -> str:
    """The path the change is about, as a program takes it."""
    return os.fsdecode(path_of(staged.resource)) if staged.resource.startswith(SCHEME) else staged.resource


def _content(staged: Staged) -> bytes:
    if staged.content is not None:
        return staged.content
    with open(staged.path, "rb") as file:
        return file.read()


def _lines(staged: Staged) -> Iterator[bytes]:
    """Lines, or pieces of very long ones: a large or binary file must not fill the memory."""
    if staged.content is not None:
        yield from staged.content.splitlines(keepends=True)
        return
    with open(staged.path, "rb") as file:
        while piece := file.readline(1 << 16):
            yield piece


def _json_trouble(staged: Staged) -> str | None:
    import json

    try:
        json.loads(_content(staged), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        return "it is nested too deeply"
    except UnicodeDecodeError:
        return "it is not text"
    except ValueError as error:
        return str(error)
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _yaml_trouble(staged: Staged) -> str | None:
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError:
        return "the package ruamel.yaml is not installed, so it cannot be looked at"
    try:
        for _ in YAML(typ="safe", pure=True).load_all(_content(staged).decode()):  # pyright: ignore
            pass
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    except RecursionError:
        return "it is nested too deeply"
    except (YAMLError, ValueError) as error:
        return _one_line(str(error))
    return None


def _toml_trouble(staged: Staged) -> str | None:
    import tomllib

    try:
        tomllib.loads(_content(staged).decode())
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return str(error)
    return None


def _python_trouble(staged: Staged) -> str | None:
    import warnings

    try:
        with warnings.catch_warnings(action="ignore"):
            compile(_content(staged), target_of(staged), "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)
    except (ValueError, RecursionError, MemoryError) as error:
        return _one_line(str(error)) or "it is too large to compile"
    return None


def _asking(ask: Callable[..., Any]) -> Callable[[Staged], str | None]:
    if not callable(ask):
        raise Misuse(f"A check must be something to call, not {ask!r}.", hint="Give a function.")
    takes_staged = _takes_an_argument(ask)

    def call(staged: Staged) -> str | None:
        try:
            answer = ask(staged) if takes_staged else ask()
        except Exception as error:  # noqa: BLE001 - whatever a stranger's check raises means no
            return _one_line(f"{type(error).__name__}: {error}")
        if answer is None or answer is True:
            return None
        return _one_line(answer) if isinstance(answer, str) and answer else f"it answered {answer!r}"

    return call


def _takes_an_argument(ask: Callable[..., Any]) -> bool:
    """Whether it must be given the staged file; what can be called without anything is."""
    import inspect

    try:
        inspect.signature(ask).bind()
    except (TypeError, ValueError):
        return True
    return False


def _within(call: Callable[[Staged], str | None], seconds: float) -> Callable[[Staged], str | None]:
    """The same, but silence becomes a no: the change must not wait for ever."""
    import threading

    def timed(staged: Staged) -> str | None:
        answers: list[str | None] = []
        thread = threading.Thread(target=lambda: answers.append(call(staged)), daemon=True)
        thread.start()
        thread.join(seconds)
        return answers[0] if answers else f"no answer within {seconds:g} s"

    return timed


def _name_of(ask: Callable[..., Any]) -> str:
    return str(getattr(ask, "__name__", type(ask).__name__)).replace("<lambda>", "check")


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.strip().splitlines()[:4]).rstrip(".")
