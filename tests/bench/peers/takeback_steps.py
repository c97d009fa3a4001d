"""takeback: submitted, claimed by a worker, carried out and ended. `remember` records what a step returned, as peers
do; `call` also that it is about to be made; `probed` asks the world what became of one that was cut short."""

from answering import STEPS, measured
from takeback_flows import asked, call, probed, remember

import takeback

workflow = {"remember": remember, "call": call, "probed": probed}[asked.flavour]
with takeback.open(asked.store) as tb:

    def steps(many: int) -> int:
        run = tb.submit(workflow, many)
        tb.work(workflow, until_idle=True)
        return tb.result(run, timeout=0)

    if asked.mode == "steps":
        measured(steps)
    elif asked.mode == "begin":
        steps(STEPS)
    else:
        tb.work(workflow)
