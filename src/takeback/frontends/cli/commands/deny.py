"""`deny`: say no to what was proposed."""

from typing import TYPE_CHECKING

from takeback.frontends.cli.command import Asked, Command, option
from takeback.frontends.cli.commands.approve import DECIDING, by_key, decided
from takeback.model.effect import Effect

if TYPE_CHECKING:
    from takeback.api import Takeback


def _deny(asked: Asked) -> int:
    options = asked.options

    def deny(tb: "Takeback", effect: Effect) -> Effect:
        if options.key:
            return by_key(asked, tb, effect, False, why=options.why)
        return tb.deny(effect, by=options.by, why=options.why)

    return decided(asked, deny, "denied; nothing is called")


_WHY = option("--why", "WORDS", "the reason; its run sees it", default="")
COMMAND = Command(_deny, (*DECIDING, _WHY))
