"""`deny`: say no to what was proposed."""

from argparse import ArgumentParser

from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.commands.approve import decided, deciding_arguments, who_decides


def _deny_arguments(parser: ArgumentParser) -> None:
    deciding_arguments(parser)
    parser.add_argument("--why", default="", metavar="WORDS", help="the reason; its run sees it")


def _deny(asked: Asked) -> int:
    options = asked.options
    return decided(
        asked,
        lambda tb, effect: tb.deny(effect, by=who_decides(options.by), why=options.why),
        "denied; nothing is called",
    )


COMMAND = Command(_deny_arguments, _deny)
