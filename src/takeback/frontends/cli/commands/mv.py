"""`mv`: move or rename."""

import os
import shlex

from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command, flag, positional
from takeback.frontends.cli.session.change import CHANGING, one_change

_ARGUMENTS = (
    positional("source", "A", "what to move"),
    positional("target", "B", "the new name, or a directory to move it into"),
    flag("-f, --replace", "replace the present content (it is captured)"),
    *CHANGING,
)


def _mv(asked: Asked) -> int:
    from takeback.adapters.file.changes import move_change

    options = asked.options
    target: str = options.target
    if os.path.isdir(target) and not os.path.islink(target):
        target = os.path.join(target, os.path.basename(options.source.rstrip("/")))
    elif target.endswith("/"):
        raise Misuse(
            f"{target} is not a directory.", hint=f"Make it first: `takeback mkdir -p {shlex.quote(target)}`."
        )
    return one_change(asked, lambda tb: move_change(options.source, target, replace=options.replace))


COMMAND = Command(_mv, _ARGUMENTS)
