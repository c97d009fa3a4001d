"""`chmod`: set the mode of a file."""

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


COMMAND = Command(_chmod_arguments, _chmod)
