"""Where a command begins and ends: quickly, because hooks and prompts start one process for each."""

try:
    import gc
    import os
    import sys
except KeyboardInterrupt:  # nothing was begun
    raise SystemExit(130) from None

TYPE_CHECKING = False  # not from typing: as little as can be is imported before an interrupt is heard

if TYPE_CHECKING:
    from collections.abc import Sequence

_GARBAGE = 100_000  # objects


def main(argv: "Sequence[str] | None" = None) -> int:
    """Carry out one command line; its exit code. Without arguments it is that of the process, which ends with it."""
    try:
        if argv is None:
            # Nothing becomes garbage while modules load, and little does in a command that is over in a moment: by
            # itself Python would look for it every few hundred objects, which costs more than most commands do.
            gc.disable()
            gc.set_threshold(_GARBAGE)
        code = _sent(sys.argv[1:]) if argv is None and "run" in sys.argv else None
        if code is None:
            from takeback.frontends.cli.answer import answer

            code = answer(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:  # before it was begun, or again while the first one was answered
        code = 130
    if argv is not None:
        return code
    # The store is closed and everything is printed: taking the interpreter apart would cost a tenth more.
    if sys.stderr:
        sys.stderr.flush()
    os._exit(code)


def _sent(words: "Sequence[str]") -> int | None:
    """A command in a sandbox that the daemon carries out in the same way, but quicker; None: it is done here."""
    from takeback.frontends.agents.client import COMMAND, LOST, sent, store_of_run

    code = sent(COMMAND, words, store_of_run(words))
    if code != LOST:
        return code
    from takeback.frontends.cli.answer import tell_lost

    return tell_lost(words)
