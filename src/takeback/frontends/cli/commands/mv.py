"""`mv`: move or rename."""

import os
import shlex
from argparse import ArgumentParser
from typing import TYPE_CHECKING

from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.session.change import (
    changing_arguments,
    one_change,
    wishes,
)

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.change import Change


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


COMMAND = Command(_mv_arguments, _mv)
