"""What an ordinary user does in a root filesystem with several users of its own; prints what he saw as JSON."""

import json
import os
import sys
from typing import Any

import takeback
from takeback.errors import ResourceUnreachable


def seen(home: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    with takeback.open(os.path.join(home, "store")) as tb, tb.run("as a user") as run:
        with run.sandbox(os.path.join(home, "root")) as box:
            assert box.run("echo x > /file; chown 33:44 /file").effect
            told["owned"] = box.run("ls -ln /file").stdout.decode().split()[2:4]
            assert box.run(
                "mkdir /closed; echo y > /closed/z; chown -R 7:7 /closed; chmod 700 /closed"
            ).effect
            told["dropped"] = box.run("rm -r /closed /file; exit 1").dropped
            for number in range(17):
                assert box.run(f"echo {number} > /closed/n").effect
            box._upkeep.wait()  # pyright: ignore[reportPrivateUsage]
            told["stack"] = len(box._stack(box._head().layer).layers)  # pyright: ignore[reportPrivateUsage]
            told["last"] = box.run("cat /closed/n /closed/z; ls -ln /closed/z").stdout.decode().split()
            box.undo(17)
            told["back"] = box.run("ls /closed").stdout.decode().split()
            told["refused"] = []
            for act in (box.changes, box.commit, lambda: box.export(os.path.join(home, "image.tar"))):
                try:
                    act()
                except ResourceUnreachable as error:
                    told["refused"].append(str(error))
            box.discard()
        tb.forget([one.id for one in tb.effects()])
        tb.sweep(grace=0)
        told["sound"] = tb.verify().sound
        told["layers"] = os.listdir(os.path.join(home, "store", "layers"))
    return told


def main() -> None:
    sys.stdout.write(json.dumps(seen(sys.argv[1])) + "\n")
