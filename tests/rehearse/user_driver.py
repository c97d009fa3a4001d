"""What an ordinary user rehearses; the library of the tests is not there for him."""

import json
import os
import sys


def main() -> None:
    import takeback

    mine = sys.argv[1]
    work = os.path.join(mine, "work")
    os.mkdir(work)
    os.chdir(work)
    os.mkdir("dir")
    for name, text in (("dir/x", "x"), ("one", "shared"), ("old", "old")):
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    os.link("one", "two")
    with takeback.open(os.path.join(mine, "store")) as tb:
        with tb.run("work") as run:
            run.write("old", "new", mode=0o600)
            run.delete("one")
            run.move("dir", "dir2")
            run.delete("dir2")
            run.command("mkdir n; echo 1 > n/y; mv old n/old")
            with run.watch("."), open("n/watched", "w", encoding="utf-8") as file:
                file.write("seen")
        with open("plan.toml", "w", encoding="utf-8") as file:
            file.write('[[step]]\nrun = "echo made > made"\n[[step]]\nwrite = "other"\ncontent = "x"\n')
        names = sorted(os.listdir("."))
        found = tb.rehearse(everything=True)
        plan = tb.rehearse(plan="plan.toml")
        told = {
            "effects": [[one.summary.split()[0], one.outcome.value, one.why] for one in found.rehearsed],
            "plan": [[one.summary, one.outcome.value, one.why] for one in plan.rehearsed],
            "same": sorted(os.listdir(".")) == names,
            "states": sorted({one.state.value for one in tb.effects()}),
            "sound": tb.verify(read_data=True).sound,
            "left": os.listdir(os.path.join(mine, "store", "rehearsals")),
        }
    sys.stdout.write(json.dumps(told))
