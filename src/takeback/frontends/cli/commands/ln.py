"""`ln`: make a symbolic link."""

from argparse import ArgumentParser
from typing import TYPE_CHECKING

from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.session.change import (
    changing_arguments,
    one_change,
    wishes,
)

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.change import Change


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


COMMAND = Command(_ln_arguments, _ln)
