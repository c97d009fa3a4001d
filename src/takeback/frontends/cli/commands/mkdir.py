"""`mkdir`: make a directory."""

from typing import TYPE_CHECKING

from takeback.frontends.cli.command import Asked, Command, flag, option, positional
from takeback.frontends.cli.session.change import (
    CHANGING,
    mode_of,
    one_change,
    wishes,
)

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.change import Change


_ARGUMENTS = (
    positional("path", "PATH", "the new directory"),
    flag("-p, --parents", "also the directories around it"),
    option("--mode", "M", "octal, such as 750"),
    *CHANGING,
)


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


COMMAND = Command(_mkdir, _ARGUMENTS)
