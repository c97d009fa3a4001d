"""`mv`: move or rename."""

import os
import shlex
from typing import TYPE_CHECKING

from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command, flag, positional
from takeback.frontends.cli.session.change import (
    CHANGING,
    one_change,
    wishes,
)

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.change import Change


_ARGUMENTS = (
    positional("source", "A", "what to move"),
    positional("target", "B", "the new name, or a directory to move it into"),
    flag("-f, --replace", "replace the present content (it is captured)"),
    *CHANGING,
)


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


COMMAND = Command(_mv, _ARGUMENTS)
