"""`rm`: remove files and directories."""

import os
import time
from typing import TYPE_CHECKING

from takeback.audit.views import effect_json
from takeback.errors import Misuse, TakebackError
from takeback.frontends.cli.command import Asked, Command, flag, positional
from takeback.frontends.cli.output.errors import aimed, as_field, exit_code, told_trouble, worst_first
from takeback.frontends.cli.output.screen import error_json, took
from takeback.frontends.cli.session.change import (
    ALLOW_INEXACT,
    CHANGING,
    followable,
    say_effect,
    tell_plan,
    wishes,
)
from takeback.frontends.cli.session.store import dry_store, give, known_effects, opened, session

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.effect import Effect


_ARGUMENTS = (
    positional("paths", "PATH", "a file, a link, or a directory with all that is in it", nargs="+"),
    flag("-r, -R, --recursive", "accepted; directories are always removed whole"),
    flag("-f, --ignore-missing", "ignore missing files"),
    *CHANGING,
    ALLOW_INEXACT,
)


def _rm(asked: Asked) -> int:
    options = asked.options
    paths = [path for path in options.paths if not options.ignore_missing or os.path.lexists(path)]
    for path in paths:
        if os.path.basename(path.rstrip("/")) in (".", ".."):
            raise Misuse(
                f"{path} is the current directory or a parent of it.",
                hint="Nothing was removed. Name the directory by its path.",
            )
    if options.key and len(paths) > 1:
        raise Misuse("One key cannot stand for several effects.", hint="Remove the paths one by one.")
    if options.dry_run:
        from takeback.adapters.file.changes import delete_change

        with dry_store(asked) as tb:
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


COMMAND = Command(_rm, _ARGUMENTS)
