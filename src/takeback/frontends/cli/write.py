"""`write rm mv mkdir ln chmod`: guarded changes of files, each one effect of the command line's run."""

import os
import shlex
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING

from takeback.audit.views import effect_json
from takeback.errors import Misuse, TakebackError
from takeback.frontends.cli.commands import Asked, Command
from takeback.frontends.cli.output.errors import aimed, as_field, exit_code, told_trouble, worst_first
from takeback.frontends.cli.output.screen import clean, error_json, quoted, took, warn
from takeback.frontends.cli.session.change import (
    changing_arguments,
    checks_of,
    followable,
    mode_of,
    one_change,
    refuse_open_files,
    say_effect,
    tell_plan,
    wishes,
)
from takeback.frontends.cli.session.store import give, known_effects, opened, rehearsal, session
from takeback.model.content import PIECE, Naming, name_of

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.change import Change
    from takeback.model.effect import Effect


_IN_MEMORY = 8 << 20  # more than this waits in a file without a name


class Spooled:
    """Content that is too long to hold; can be read more than once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(PIECE):
            yield piece


def read_input() -> "bytes | Iterable[bytes]":
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by whoever started us
        raise Misuse(
            "There is no standard input to read the content from.", hint="takeback write PATH < content"
        )
    if sys.stdin.isatty():
        warn("Reading the content from the terminal; Ctrl-D ends it.")
    source = sys.stdin.buffer
    first = source.read(_IN_MEMORY)
    rest = source.read(PIECE) if len(first) == _IN_MEMORY else b""
    if not rest:
        return first
    from tempfile import TemporaryFile

    # Lives as long as the process: it is read when the change is made.
    file = TemporaryFile()  # noqa: SIM115
    file.write(first)
    while rest:
        file.write(rest)
        rest = source.read(PIECE)
    return Spooled(file)


def digest_of(content: "bytes | Iterable[bytes]") -> tuple[str, int]:
    if isinstance(content, bytes):
        return name_of(content).hex(), len(content)
    naming, size = Naming(), 0
    for piece in content:
        naming.add(piece)
        size += len(piece)
    return naming.digest().hex(), size


# write


def _write_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", help="the file; what it becomes is read from standard input")
    parser.add_argument(
        "--check", metavar="CMD", action="append", default=[],
        help="must succeed first, unless nothing changes; {staged} is the new file, {target} its place",
    )  # fmt: skip
    parser.add_argument("--mode", metavar="M", help="octal, such as 644 (else: as it was, or by the umask)")
    changing_arguments(parser, inexact=True)


def _write(asked: Asked) -> int:

    options = asked.options
    if options.path.endswith("/"):
        raise Misuse(
            f"{options.path} names a directory, not a file.", hint="Leave the slash at the end away."
        )
    refuse_open_files(options.path)
    directory = os.path.dirname(options.path)
    if directory and not os.path.lexists(directory):
        raise Misuse(
            f"The directory {clean(directory)} does not exist.",
            hint=f"Make it first: `takeback mkdir -p {quoted(directory)}`.",
        )
    mode = mode_of(options.mode) if options.mode is not None else None
    checks = checks_of(asked)
    content = read_input()

    def planned(tb: "Takeback") -> "Change":
        from takeback.adapters.file.changes import write_change

        digest, size = digest_of(content)
        return write_change(options.path, digest, size, mode, allow_inexact=options.allow_inexact)

    return one_change(
        asked,
        planned,
        lambda tb, run: run.write(
            options.path,
            content,
            mode=mode,
            checks=checks,
            allow_inexact=options.allow_inexact,
            **wishes(asked, tb),
        ),
        checks,
        lambda: content,
    )


# rm


def _rm_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a file, a link, or a directory with all that is in it"
    )
    parser.add_argument(
        "-r", "-R", "--recursive", action="store_true", help="accepted; directories go whole anyway"
    )
    parser.add_argument("-f", "--force", action="store_true", help="what is not there is no error")
    changing_arguments(parser, inexact=True)


def _rm(asked: Asked) -> int:
    options = asked.options
    paths = [path for path in options.paths if not options.force or os.path.lexists(path)]
    for path in paths:
        if os.path.basename(path.rstrip("/")) in (".", ".."):
            raise Misuse(
                f"{path} is the directory you stand in, or one around it.",
                hint="Nothing was removed. Name the directory by its path.",
            )
    if options.key and len(paths) > 1:
        raise Misuse("One key cannot stand for several effects.", hint="Remove the paths one by one.")
    if options.dry_run:
        from takeback.adapters.file.changes import delete_change

        with rehearsal(asked) as tb:
            return tell_plan(
                asked, tb, [delete_change(path, allow_inexact=options.allow_inexact) for path in paths]
            )
    effects: list[tuple[Effect, str]] = []
    errors: list[TakebackError] = []
    with opened(asked, known_effects(options.needs)) as tb:
        with session(asked, tb) as run:
            for path in paths:
                started = time.perf_counter()
                try:
                    effect = run.delete(path, allow_inexact=options.allow_inexact, **wishes(asked, tb))
                except TakebackError as error:
                    errors.append(followable(asked, error))
                    continue
                if effect:
                    effects.append((effect, took(started)))
        asked.made.extend(effect.id for effect, _ in effects)
        # Told at the end: an answer that cannot be printed must not stop what was asked for.
        for effect, lasted in effects:
            say_effect(asked, effect, lasted)
        return _tell_removed(asked, tb, [effect for effect, _ in effects], errors)


def _tell_removed(asked: Asked, tb: "Takeback", effects: "list[Effect]", errors: list[TakebackError]) -> int:
    made = [effect_json(tb.effect(effect.id)) for effect in effects]
    if len(asked.options.paths) == 1:
        if errors:
            raise errors[0]
        give(asked, tb, {"changed": bool(made), **(made[0] if made else {"id": None})})
        return 0
    told = {"effects": made, "errors": [error_json(aimed(error, asked.options.store)) for error in errors]}
    give(asked, tb, told | as_field(asked.screen, worst_first(errors)))
    told_trouble(asked.screen, errors)
    return exit_code(bool(effects), errors)


# mv


def _mv_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("source", metavar="A")
    parser.add_argument("target", metavar="B", help="the new name, or a directory to move it into")
    parser.add_argument(
        "-f", "--replace", action="store_true", help="replace the present content (it is captured)"
    )
    changing_arguments(parser)


def _mv(asked: Asked) -> int:
    options = asked.options
    target: str = options.target
    if os.path.isdir(target) and not os.path.islink(target):
        target = os.path.join(target, os.path.basename(options.source.rstrip("/")))
    elif target.endswith("/"):
        raise Misuse(
            f"{target} is not a directory.", hint=f"Make it first: `takeback mkdir -p {shlex.quote(target)}`."
        )

    def planned(tb: "Takeback") -> "Change":
        from takeback.adapters.file.changes import move_change

        return move_change(options.source, target, replace=options.replace)

    return one_change(
        asked,
        planned,
        lambda tb, run: run.move(options.source, target, replace=options.replace, **wishes(asked, tb)),
    )


# mkdir, ln, chmod


def _mkdir_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path")
    parser.add_argument("-p", "--parents", action="store_true", help="also the directories around it")
    parser.add_argument("--mode", metavar="M", help="octal, such as 750")
    changing_arguments(parser)


def _mkdir(asked: Asked) -> int:
    options = asked.options
    mode = mode_of(options.mode) if options.mode is not None else None

    def planned(tb: "Takeback") -> "Change":
        from takeback.adapters.file.changes import mkdir_change

        return mkdir_change(options.path, mode, parents=options.parents)

    return one_change(
        asked,
        planned,
        lambda tb, run: run.mkdir(options.path, mode, parents=options.parents, **wishes(asked, tb)),
    )


def _ln_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-s", "--symbolic", action="store_true", help="accepted; links are always symbolic")
    parser.add_argument("target", metavar="TARGET", help="what the link says, as it is")
    parser.add_argument("path", metavar="LINK")
    changing_arguments(parser)


def _ln(asked: Asked) -> int:
    options = asked.options

    def planned(tb: "Takeback") -> "Change":
        from takeback.adapters.file.changes import symlink_change

        return symlink_change(options.path, options.target)

    return one_change(
        asked, planned, lambda tb, run: run.symlink(options.path, options.target, **wishes(asked, tb))
    )


def _chmod_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("mode", metavar="MODE", help="octal, such as 755")
    parser.add_argument("path")
    changing_arguments(parser)


def _chmod(asked: Asked) -> int:
    options = asked.options
    mode = mode_of(options.mode)

    def planned(tb: "Takeback") -> "Change":
        from takeback.adapters.file.changes import chmod_change

        return chmod_change(options.path, mode)

    return one_change(asked, planned, lambda tb, run: run.chmod(options.path, mode, **wishes(asked, tb)))


COMMANDS = {
    "write": Command(_write_arguments, _write),
    "rm": Command(_rm_arguments, _rm),
    "mv": Command(_mv_arguments, _mv),
    "mkdir": Command(_mkdir_arguments, _mkdir),
    "ln": Command(_ln_arguments, _ln),
    "chmod": Command(_chmod_arguments, _chmod),
}
