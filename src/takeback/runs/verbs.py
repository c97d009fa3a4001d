"""The changes and databases an agent can ask a run for. Each becomes plain data; the run carries it out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.file import changes
from takeback.adapters.file.paths import resolve
from takeback.errors import Misuse
from takeback.model.change import Change
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.policy.checks import Check
from takeback.runs.selection import names_of, refuse_odd_key
from takeback.storage.protocols import Blobs

if TYPE_CHECKING:
    from takeback.adapters.database import Tell
    from takeback.engine.parts import Parts
    from takeback.model.effect import Effect
    from takeback.model.run import Lease
    from takeback.runs.sql import Sql, SqlHand
    from takeback.runs.watch_databases import SeenProgram


class Querying(ABC):
    _parts: "Parts"
    _lease: "Lease"
    _databases: "list[Sql]"

    @abstractmethod
    def _refuse_in_workflow(self, what: str, instead: str) -> None: ...

    @abstractmethod
    def _hand(self) -> "SqlHand":
        """What a database needs of this run, which has not ended."""

    def sql(
        self, address: str, *, most: int | None = None, review: bool = False, limit: float = 300
    ) -> "Sql":
        """A database: `postgresql://…`, `sqlite:///file.db`, `mariadb://…`, `redis://…`, or `env:NAME` for an address
        that is in an environment variable. Each statement that changes something is an effect. `most` is how
        many rows one may change (0: any number; else the setting max_rows holds). With `review` it is held until
        `apply` or `discard`; where only an open session can hold it, for `limit` seconds at most."""
        from takeback.runs.sql import Sql, connected

        if review:
            self._refuse_in_workflow("A transaction that waits for a person", "Ask first: run.wait.")
        hand = self._hand()
        if most is not None:
            if type(most) is not int or most < 0:
                raise Misuse(
                    f"{most!r} is no number of rows.", hint="For example most=10_000_000; 0: no limit."
                )
            hand = hand._replace(most=most)
        with hand.lock:
            session = connected(hand, address)
            if review:
                from takeback.runs.sql import ReviewedSql

                opened = ReviewedSql(hand, session, limit)
            else:
                opened = Sql(hand, session)
            self._databases.append(opened)
            return opened

    def program(
        self, *addresses: str, says: str = "a program", tell: "Tell | None" = None
    ) -> "AbstractContextManager[SeenProgram]":
        """Start a program with a database driver of its own in the block, with the variables in `.environment`, and
        wait for its end there. What it changed in these databases is one effect each, in `.effects` after the block.
        `tell(sentence, hint)` is called, by another thread, when the program is kept from something."""
        from takeback.adapters.database import quiet
        from takeback.runs.watch_databases import program

        self._refuse_in_workflow("A program with a driver of its own", "Use run.call with an action.")
        return program(self._hand(), addresses, says, tell or quiet)

    def refuse_in_transaction(self, effects: "Iterable[Effect]") -> None:
        """Before an undo: it would wait for the transaction in which it is asked for."""
        from takeback.model.database import resource_of

        busy = {resource_of(one.database) for one in self._databases if one.in_transaction_here}
        for one in effects:
            if one.change.resource in busy:
                raise Misuse(
                    f"Effect {short(one.id)} cannot be taken back in the middle of a transaction on the same database.",
                    hint="Nothing was changed. Undo it before or after the `with db.transaction():` block.",
                    effect=one.id,
                )

    def _close_databases(self) -> None:
        for database in self._databases:
            database.close()
        self._databases.clear()

    def _drop_reviewed(self) -> int:
        """How many changes it held."""
        if not self._databases:
            return 0
        from takeback.engine.review import drop_all

        return drop_all(self._parts, self._lease)


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
        from takeback.adapters.config import adapter as config_changes

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
