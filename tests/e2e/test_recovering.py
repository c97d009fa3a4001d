"""What `recover` says was settled is settled, and what is not at rest after it is told."""

import re

from tests.e2e.conftest import CommandLine
from tests.e2e.test_telling import python
from tests.world import World

DIES_IN_A_CALL = """
import os, takeback
@takeback.action(verify=lambda key: None)
def order(): os._exit(0)
@order.undo
def cancel(receipt): ...
takeback.open(recover=False).run("shop").call(order)
"""

ASKS_INSIDE = """
import subprocess, sys, takeback
@takeback.action
def order() -> str:
    words = [sys.executable, "-m", "takeback", "recover", *sys.argv[1:]]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
@order.undo
def cancel(receipt): ...
with takeback.open() as tb, tb.run("shop") as run:
    print(run.call(order))
"""

STUCK_WORKFLOW = """
import takeback
@takeback.action
def order(): raise TimeoutError("no answer")
@order.undo
def cancel(receipt): ...
@takeback.workflow(name="shop")
def shop(run): run.call(order)
with takeback.open() as tb:
    tb.submit(shop)
    tb.work(shop, until_idle=True)
"""


def test_what_stays_in_doubt_is_not_told_as_settled(takeback: CommandLine, world: World) -> None:
    python(world, DIES_IN_A_CALL)
    python(world, DIES_IN_A_CALL)

    for _ in range(2):
        said = takeback("recover")
        assert re.search(r"^Recovered 0 effects in .*; 0 stuck, 2 in doubt\.$", said.out, re.MULTILINE), said
        assert said.code == 7
        assert "2 effects are in doubt" in said.err and "takeback settle" in said.err

    given = takeback("recover", "--json")
    assert given.code == given.error["exit_code"] == 7
    assert given.json["settled"] == []
    assert ["is in doubt: " in one["detail"] for one in given.json["unsettled"]] == [True, True]

    for one in given.json["unsettled"]:
        takeback.done("settle", one["effect"], "--did-not-happen")
    assert takeback.done("recover").out == "Nothing to recover: every effect is settled.\n"


def test_what_a_living_process_is_at_is_told_and_left_alone(world: World) -> None:
    said = python(world, ASKS_INSIDE)
    assert "is locked by another process" in said.out, said
    assert re.search(r"^Recovered 0 effects in .*; 0 stuck, 1 still open\.$", said.out, re.MULTILINE)
    assert "every effect is settled" not in said.out

    dry = python(world, ASKS_INSIDE, "--dry-run")
    assert "is locked by another process" in dry.out, dry


def test_what_is_stuck_in_a_workflow_is_told(takeback: CommandLine, world: World) -> None:
    assert python(world, STUCK_WORKFLOW).code == 0

    said, given = takeback("recover"), takeback("recover", "--json")

    assert (said.code, given.code) == (4, 4), said
    assert "is stuck; its workflow waits for a person" in said.out
    assert re.search(r"^Recovered 0 effects in .*; 1 stuck\.$", said.out, re.MULTILINE)
    assert [one["detail"] for one in given.json["unsettled"]] == ["is stuck; its workflow waits for a person"]
    assert "is stuck; its workflow" in takeback.done("recover", "--dry-run").out
