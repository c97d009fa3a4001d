"""The file changes an agent can ask a run for. Each becomes plain data; the run carries it out."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from takeback.adapters.file import changes
from takeback.adapters.file.paths import path_bytes, resolve
from takeback.errors import Misuse, Renamed
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.policy.checks import Check
from takeback.runs.change import Options, make_change
from takeback.runs.core import RunCore
from takeback.runs.selection import names_of, refuse_odd_key
from takeback.runs.workflows.function import digest_of

Path = changes.Path
Content = str | bytes | Iterable[bytes]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def options_of(
    key: str,
    needs: "Sequence[str | Effect]",
    checks: Sequence[Check] = (),
    expects: Callable[[], bool] | None = None,
    allow_inexact: bool = False,
) -> Options:
    if not isinstance(checks, (list, tuple)) or not all(isinstance(one, Check) for one in checks):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(
            "Checks are given as a list of takeback.checks.",
            hint="Wrap your own function: checks=[checks.check(fn)].",
        )
    refuse_odd_key(key)
    return Options(key, names_of(needs), tuple(checks), expects, allow_inexact)


def renamed(**words: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Of a function whose arguments had other names, each with the one that it has now."""

    def refuse_old(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(function)
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            for old in words.keys() & kwargs.keys():
                raise Renamed(f"{old}= was renamed.", hint=f"Say {words[old]}=.")
            return function(*args, **kwargs)

        return called

    return refuse_old


def ask(
    core: RunCore, build: Callable[[], Change], options: Options, verb: str, path: Any, *more: Any
) -> Effect | None:
    """Make a change of files; in a workflow, as the step that asks for just this."""
    if core.replay is not None:
        options = _asked_for(options, verb, path, *more)
    return make_change(core, build, options)


def _asked_for(options: Options, verb: str, path: Any, *more: Any) -> Options:
    """The request of a step, before names are resolved: links and directories may have changed when it is replayed."""
    paths = tuple(cast("Mapping[Any, Any]", path)) if isinstance(path, Mapping) else (path,)
    paths += more[:1] if verb == "move" else ()
    names = [os.fsdecode(path_bytes(one)) for one in paths]
    where = "" if all(os.path.isabs(name) for name in names) else os.getcwd()
    asked = digest_of(verb, options.key, options.allow_inexact, where, names, _plain(path), _plain(more))
    return options._replace(asked=asked, says=f"{verb} {', '.join(names[:2])}{', …' if names[2:] else ''}")


def write(core: RunCore, options: Options, path: Path, content: Content, mode: int | None) -> Effect | None:
    def build() -> Change:
        file = _new_file(core, path, content, mode)
        return changes.write_change(file.path, file.digest, file.size, file.mode, resource=file.resource)

    return ask(core, build, options, "write", path, content, mode)


def write_all(core: RunCore, options: Options, files: Mapping[Any, Content]) -> Effect | None:
    def build() -> Change:
        return changes.write_all_change([_new_file(core, path, content) for path, content in files.items()])

    return ask(core, build, options, "write", files)


def edit_config(
    core: RunCore,
    options: Options,
    path: Path,
    set: Mapping[str, Any] | None,
    delete: Sequence[str],
    format: str,
) -> Effect | None:
    from takeback.adapters.config.adapter import edit_change

    def build() -> Change:
        return edit_change(path, set or {}, delete, format, core.parts.blobs)

    return ask(core, build, options, "edit", path, set, delete, format)


def _new_file(core: RunCore, path: Path, content: Content, mode: int | None = None) -> changes.NewFile:
    """The content goes into the store first; a change is plain data and names it by digest."""
    if mode is not None and not isinstance(mode, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(f"A mode is a number, not {mode!r}.", hint="For example 0o644.")
    resource = resolve(path, follow=True)
    data = _as_bytes(content)
    if isinstance(data, (bytes, bytearray)):
        digest = core.parts.blobs.put(bytes(data), like=resource)
        return changes.NewFile(path, digest, len(data), mode, resource)
    size = 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for piece in data:
            size += len(piece)
            yield piece

    digest = core.parts.blobs.put(counted(), like=resource)
    return changes.NewFile(path, digest, size, mode, resource)


def _as_bytes(content: Content) -> bytes | Iterable[bytes]:
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError as error:
            raise Misuse(
                f"The text cannot be written as UTF-8: {error.reason}.",
                hint="Encode it yourself and give bytes.",
            ) from None
    if not hasattr(content, "__iter__"):
        raise Misuse(
            f"{type(content).__name__} is no content.", hint="Give text, bytes, or an iterable of bytes."
        )
    return content


def _plain(asked: Any) -> Any:
    """As JSON: paths as text, contents by their digest."""
    if isinstance(asked, (str, int)) or asked is None:
        return asked
    if isinstance(asked, bytes):
        return hashlib.sha256(asked).hexdigest()
    if isinstance(asked, os.PathLike):
        return os.fsdecode(asked)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(asked, Mapping):
        return [[_plain(name), _plain(value)] for name, value in asked.items()]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(asked, (list, tuple)):
        return [_plain(one) for one in asked]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(asked, float):
        return repr(asked)
    raise Misuse(
        f"A workflow cannot compare a value of type {type(asked).__name__} with its recorded step.",
        hint="Give text, bytes, numbers, lists or dicts.",
    )
