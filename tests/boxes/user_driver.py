"""What an ordinary user does with boxes, in his own process; prints what he saw as JSON. Started by test_box_user."""

import json
import os
import sys
from typing import Any

import takeback


def machine(home: str) -> dict[str, Any]:
    """Over the machine's own files."""
    work = os.path.join(home, "work")
    os.makedirs(os.path.join(work, "dir", "sub"))
    for name, text in (("old", "old\n"), ("dir/sub/x", "x\n")):
        with open(os.path.join(work, name), "w") as file:
            file.write(text)
    told: dict[str, Any] = {}
    with (
        takeback.open(os.path.join(home, "store")) as tb,
        tb.run("as a user") as run,
        run.sandbox(cwd=work) as box,
    ):
        first = box.run("echo more >> old; mv dir moved; echo y > moved/y; cd moved; export X=1; id -u")
        told["first"] = [first.exit_code, first.stdout.decode(), first.effect is not None]
        told["failed"] = box.run("rm -rf *; cd /; exit 3").dropped
        for number in range(17):
            assert box.run(f"echo {number} > n; mkdir c{number}; chmod 000 c{number}").effect
        box._upkeep.wait()  # pyright: ignore[reportPrivateUsage]
        told["stack"] = len(box._stack(box._head().layer).layers)  # pyright: ignore[reportPrivateUsage]
        told["closed"] = box.run("ls -d c* | wc -l; cat n").stdout.decode().split()
        box.undo(17)
        told["shown"] = box.run("pwd; ls; cat ../old; echo $X").stdout.decode().split()
        told["changes"] = sorted({one.kind for one in box.changes()})
        assert box.commit().effect
        told["committed"] = sorted(os.listdir(work)) + sorted(os.listdir(os.path.join(work, "moved")))
        box.undo()
        told["undone"] = sorted(os.listdir(work)) + sorted(os.listdir(os.path.join(work, "dir")))
    with takeback.open(os.path.join(home, "store")) as tb:
        tb.forget([one.id for one in tb.effects()])
        tb.sweep(grace=0)
        told["sound"] = tb.verify().sound
    return told


def main() -> None:
    sys.stdout.write(json.dumps(machine(sys.argv[1])) + "\n")


if __name__ == "__main__":
    main()
