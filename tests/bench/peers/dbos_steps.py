"""DBOS, as its guide says: a workflow that calls steps, and the database that it is given."""

import threading

from answering import STEPS, Asked, measured
from dbos import DBOS, DBOSConfig

asked = Asked()
# The executor's id is left alone, so that a second process is the same executor and recovers what the first one left.
config: DBOSConfig = {"name": "bench", "system_database_url": asked.store, "log_level": "ERROR"}
DBOS(config=config)


@DBOS.step()
def add(value: int) -> dict[str, int]:
    return asked.add(value)


@DBOS.workflow()
def steps(many: int) -> int:
    value = 0
    for _ in range(many):
        value = add(value)["value"]
    return value


DBOS.launch()
if asked.mode == "steps":
    measured(steps)
    DBOS.destroy()
elif asked.mode == "begin":
    steps(STEPS)
else:  # it recovers by itself, in threads of its own
    threading.Event().wait()
