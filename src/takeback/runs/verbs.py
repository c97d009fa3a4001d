"""The changes an agent can ask a run for. Each becomes plain data; the run carries it out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from takeback.adapters.file import changes
from takeback.adapters.file.paths import resolve
from takeback.errors import Misuse
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.policy.checks import Check
from takeback.runs.names import names_of, refuse_odd_key
from takeback.storage.protocols import Blobs

Path = changes.Path
Content = str | bytes | Iterable[bytes]


class Options(NamedTuple):
    """What every change may carry."""

    key: str = ""
    needs: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    expects: Callable[[], bool] | None = None
    allow_inexact: bool = False
    # In a workflow: what was asked for, as a digest and in words, where that is known before names are resolved.
    asked: str = ""
    says: str = ""
    apart: bool = False  # it calls somebody's function: no lock is held meanwhile


class Verbs(ABC):
    """Each returns its effect, or None if it would have changed nothing."""

    @property
    @abstractmethod
    def _blobs(self) -> Blobs: ...

    @abstractmethod
    def _change(self, build: Callable[[], Change], options: Options) -> Effect | None: ...

    @abstractmethod
    def _told(self, options: Options, verb: str, path: Any, *more: Any) -> Options: ...

    def write(
        self,
        path: Path,
        content: Content,
        *,
        mode: int | None = None,
        checks: Sequence[Check] = (),
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
        expects: Callable[[], bool] | None = None,
        allow_inexact: bool = False,
    ) -> Effect | None:
        """Put this content there: staged beside the target, checked, captured, replaced in one step."""
        options = _options(key, needs, checks, expects, allow_inexact)
        options = self._told(options, "write", path, content, mode)

        def build() -> Change:
            file = self._new_file(path, content, mode)
            return changes.write_change(file.path, file.digest, file.size, file.mode, resource=file.resource)

        return self._change(build, options)

    def write_all(
        self,
        files: Mapping[Any, Content],
        *,
        checks: Sequence[Check] = (),
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
        expects: Callable[[], bool] | None = None,
        allow_inexact: bool = False,
    ) -> Effect | None:
        """Several files as one effect: all of them or none."""
        options = self._told(_options(key, needs, checks, expects, allow_inexact), "write", files)

        def build() -> Change:
            return changes.write_all_change(
                [self._new_file(path, content) for path, content in files.items()]
            )

        return self._change(build, options)

    def _new_file(self, path: Path, content: Content, mode: int | None = None) -> changes.NewFile:
        """The content goes into the store first; a change is plain data and names it by digest."""
        if mode is not None and not isinstance(mode, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"A mode is a number, not {mode!r}.", hint="For example 0o644.")
        resource = resolve(path, follow=True)
        data = _as_bytes(content)
        if isinstance(data, (bytes, bytearray)):
            digest = self._blobs.put(bytes(data), like=resource)
            return changes.NewFile(path, digest, len(data), mode, resource)
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for piece in data:
                size += len(piece)
                yield piece

        digest = self._blobs.put(counted(), like=resource)
        return changes.NewFile(path, digest, size, mode, resource)

    def delete(
        self, path: Path, *, key: str = "", needs: "Sequence[str | Effect]" = (), allow_inexact: bool = False
    ) -> Effect | None:
        """A file, a link, or a whole directory; captured before it goes."""
        options = self._told(_options(key, needs, (), None, allow_inexact), "delete", path)
        return self._change(lambda: changes.delete_change(path), options)

    def move(
        self,
        source: Path,
        target: Path,
        *,
        replace: bool = False,
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
    ) -> Effect | None:
        options = self._told(_options(key, needs), "move", source, target, replace)
        return self._change(lambda: changes.move_change(source, target, replace=replace), options)

    def mkdir(
        self,
        path: Path,
        mode: int | None = None,
        *,
        parents: bool = False,
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
    ) -> Effect | None:
        options = self._told(_options(key, needs), "make directory", path, mode, parents)
        return self._change(lambda: changes.mkdir_change(path, mode, parents=parents), options)

    def symlink(
        self, path: Path, target: Path, *, key: str = "", needs: "Sequence[str | Effect]" = ()
    ) -> Effect | None:
        """Make `path` a symbolic link to `target`."""
        options = self._told(_options(key, needs), "link", path, target)
        return self._change(lambda: changes.symlink_change(path, target), options)

    def chmod(
        self,
        path: Path,
        mode: int,
        *,
        checks: Sequence[Check] = (),
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
    ) -> Effect | None:
        options = self._told(_options(key, needs, checks), "set the mode of", path, mode)
        return self._change(lambda: changes.chmod_change(path, mode), options)

    def edit_config(
        self,
        path: Path,
        set: Mapping[str, Any] | None = None,
        delete: Sequence[str] = (),
        *,
        format: str = "",
        checks: Sequence[Check] = (),
        key: str = "",
        needs: "Sequence[str | Effect]" = (),
        expects: Callable[[], bool] | None = None,
    ) -> Effect | None:
        """Set or delete keys of a JSON, YAML or TOML file; comments and order stay, undo is per key."""
        from takeback.adapters.config import changes as config_changes

        options = self._told(_options(key, needs, checks, expects), "edit", path, set, delete, format)
        return self._change(
            lambda: config_changes.edit_change(path, set or {}, delete, format, self._blobs), options
        )


def _options(
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
