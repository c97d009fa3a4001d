"""`unpin`: let a pinned effect be forgotten in time."""

from takeback.frontends.cli.command import Asked, Command
from takeback.frontends.cli.session.change import MADE, made_in, named_effects, say_decided, tell_decided


def _unpin(asked: Asked) -> int:
    with named_effects(asked, "unpin", made_in) as (tb, wanted):
        effects = tb.unpin(wanted, dry_run=asked.options.dry_run)
        return tell_decided(
            asked, tb, "unpin", effects, lambda one: say_decided(asked, one, "unpin", "Unpinned")
        )


COMMAND = Command(_unpin, MADE)
