"""`ln`: make a symbolic link."""

from typing import TYPE_CHECKING

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
    flag("-s, --symbolic", "accepted; links are always symbolic"),
    positional("target", "TARGET", "what the link says, as it is"),
    positional("path", "LINK", "the new link"),
    *CHANGING,
)


def _ln(asked: Asked) -> int:
    options = asked.options

    def planned(tb: "Takeback") -> "Change":
        from takeback.adapters.file.changes import symlink_change

        return symlink_change(options.path, options.target)

    return one_change(
        asked, planned, lambda tb, run: run.symlink(options.path, options.target, **wishes(asked, tb))
    )


COMMAND = Command(_ln, _ARGUMENTS)
