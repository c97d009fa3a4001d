"""`chmod`: set the mode of a file."""

from typing import TYPE_CHECKING

from takeback.frontends.cli.command import Asked, Command, positional
from takeback.frontends.cli.session.change import (
    CHANGING,
    mode_of,
    one_change,
    wishes,
)

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.change import Change


def _chmod(asked: Asked) -> int:
    options = asked.options
    mode = mode_of(options.mode)

    def planned(tb: "Takeback") -> "Change":
        from takeback.adapters.file.changes import chmod_change

        return chmod_change(options.path, mode)

    return one_change(asked, planned, lambda tb, run: run.chmod(options.path, mode, **wishes(asked, tb)))


_MODE = positional("mode", "MODE", "octal, such as 755")
COMMAND = Command(_chmod, (_MODE, positional("path", "PATH", "a file or directory"), *CHANGING))
