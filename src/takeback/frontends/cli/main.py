"""Where a command begins and ends: quickly, because hooks and prompts start one process for each."""

import gc
import os
import sys
from collections.abc import Sequence

_GARBAGE = 100_000  # objects


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line; its exit code. Without arguments it is that of the process, which ends with it."""
    if argv is None:
        # Nothing becomes garbage while modules load, and little does in a command that is over in a moment: by itself
        # Python would look for it every few hundred objects, which costs more than most commands do.
        gc.disable()
        gc.set_threshold(_GARBAGE)
    from takeback.frontends.cli.commands import answer

    if argv is not None:
        return answer(argv)
    code = answer(sys.argv[1:])
    # The store is closed and everything is printed: taking the interpreter apart would cost a tenth more.
    if sys.stderr:
        sys.stderr.flush()
    os._exit(code)
