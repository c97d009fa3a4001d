"""How a program that is measured talks to whoever measures it: a line of JSON for each thing it did.

`PROGRAM steps STORE`: for each number that it reads, a workflow of so many steps. `PROGRAM begin STORE STEP`: one that
stays in the middle of that step until it is killed. `PROGRAM recover STORE STEP`: what a fresh process makes of that.
Nothing but the standard library: it is loaded in the environment of each peer."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable

STEPS = 100


class Asked:
    """What the command line said; and what a step does, the same for everybody: it adds one."""

    def __init__(self) -> None:
        self.mode, self.store = sys.argv[1:3]
        self.step = int(sys.argv[3]) if len(sys.argv) > 3 else 0
        self.flavour = sys.argv[4] if len(sys.argv) > 4 else ""
        self.begun = time.perf_counter()  # everything was imported by now

    def add(self, value: int) -> dict[str, int]:
        if self.mode == "begin" and value + 1 == self.step:
            tell(inside=value + 1)
            threading.Event().wait()
        if self.mode == "recover":
            tell(inside=value + 1, seconds=time.perf_counter() - self.begun)
            os._exit(0)
        return {"value": value + 1}


def tell(**said: object) -> None:
    print(json.dumps(said), flush=True)


def measured(work: Callable[[int], int]) -> None:
    tell(ready=True)
    for line in sys.stdin:
        used, begun = time.process_time(), time.perf_counter()
        reached = work(int(line))
        tell(
            seconds=time.perf_counter() - begun,
            processor=time.process_time() - used,
            reached=reached,
        )
