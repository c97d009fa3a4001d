"""Works on a database until it is killed; says what it begins, and what it was told is done.

    python -m tests.sql.killed_child STORE SEED FIRST STATEMENTS    (APP_DB: the address)

Waits for a line on standard input first: whoever kills it needs it when it works, not while Python starts."""

import json
import os
import random
import sys

import takeback


def say(*words: object) -> None:
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


def work(
    tb: takeback.Takeback, run: takeback.Run, chance: random.Random, first: int, statements: list[str]
) -> None:
    done: dict[int, str] = {}
    undone: dict[int, str] = {}
    with run.sql("env:APP_DB") as db:
        number = first
        while True:
            what = chance.random()
            if done and what < 0.2:
                one = chance.choice(sorted(done))
                say("undoing", one)
                tb.undo(done[one])
                undone[one] = done.pop(one)
                say("undone", one)
            elif undone and what < 0.3:
                one = chance.choice(sorted(undone))
                say("doing", one)
                tb.redo(undone[one])
                done[one] = undone.pop(one)
                say("done", one)
            else:
                say("doing", number)
                with db.transaction(f"effect {number}") as made:
                    for statement in statements:
                        db.execute(statement.format(n=number))
                done[number] = made.effect.id
                say("done", number)
                number += 1


def main(store: str, seed: str, first: str, statements: str) -> int:
    import takeback.adapters.registry  # what every command loads, before the word to begin
    import takeback.runs.sql

    say("ready")
    sys.stdin.readline()
    try:
        with takeback.open(store) as tb:
            run = tb.session("killed", agent="child", wait=120)
            try:
                work(tb, run, random.Random(seed), int(first), json.loads(statements))
            finally:
                run.leave()
    except takeback.TakebackError as error:
        say("lost", type(error).__name__, error.exit_code, " ".join(str(error).split()))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
