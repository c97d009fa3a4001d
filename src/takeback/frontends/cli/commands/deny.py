"""`deny`: say no to what was proposed."""

from takeback.frontends.cli.command import Asked, Command, option
from takeback.frontends.cli.commands.approve import DECIDING, decided


def _deny(asked: Asked) -> int:
    options = asked.options
    return decided(
        asked,
        lambda tb, effect: tb.deny(effect, by=options.by, why=options.why),
        "denied; nothing is called",
    )


_WHY = option("--why", "WORDS", "the reason; its run sees it", default="")
COMMAND = Command(_deny, (*DECIDING, _WHY))
