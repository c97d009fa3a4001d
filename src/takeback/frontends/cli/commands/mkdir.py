"""`mkdir`: make a directory."""

from argparse import ArgumentParser
from typing import TYPE_CHECKING

from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.session.change import (
    changing_arguments,
    mode_of,
    one_change,
    wishes,
)

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.change import Change


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


COMMAND = Command(_mkdir_arguments, _mkdir)
