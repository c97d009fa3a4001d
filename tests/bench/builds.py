"""A real build in the sandbox, beside the same build without."""

import os
import random
import shutil
import subprocess
from collections.abc import Callable

import takeback
from tests.bench.measure import Line, Table, Wishes, in_turns, seconds_of

FUNCTIONS = 25


def measure(wishes: Wishes) -> Table:
    if not shutil.which("gcc") or not shutil.which("make"):
        return Table("A build in the sandbox", (), ("gcc and make are missing: tools/set-up bench",))
    files = 30 if wishes.quick else 220
    project = os.path.join(wishes.directory, "project")
    _plant(project, files)
    with (
        takeback.open(os.path.join(wishes.directory, "store")) as tb,
        tb.run("build") as run,
        run.sandbox() as box,
    ):

        def in_a_box() -> None:
            outcome = box.run(f"cd {project} && make -s -j2")
            assert outcome.exit_code == 0, outcome
            box.undo(1)

        def merged() -> None:
            outcome = run.command(["make", "-s", "-j2"], cwd=project)
            assert outcome.exit_code == 0 and outcome.effect, outcome

        taken = in_turns(
            {
                "direct": lambda: _clean(project, lambda: _make(project)),
                "box": lambda: _clean(project, in_a_box),
                "merged": lambda: _clean(project, merged),
            },
            max(7, wishes.rounds // 2) if not wishes.quick else 3,
        )
    lines = (
        Line(
            f"make of {files} C files in a box", taken["box"], "s", "without", taken["direct"], 1.05, "cost"
        ),
        Line(
            f"make of {files} C files, merged", taken["merged"], "s", "without", taken["direct"], 1.05, "cost"
        ),
    )
    notes = (
        "in a box: the command, its layer made durable, and back again; merged: all of it captured and copied into "
        "the tree, durable",
    )
    return Table("A build in the sandbox (ratio of wall times; lower is better)", lines, notes)


def _clean(project: str, act: Callable[[], object]) -> float:
    shutil.rmtree(os.path.join(project, "build"), ignore_errors=True)
    os.mkdir(os.path.join(project, "build"))
    os.sync()
    return seconds_of(act)


def _make(project: str) -> None:
    subprocess.run(["make", "-s", "-j2"], cwd=project, check=True)


def _plant(project: str, files: int) -> None:
    chance = random.Random(4)
    os.makedirs(os.path.join(project, "src"))
    names = [f"part{number}" for number in range(files)]
    for name in names:
        text = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
        for number in range(FUNCTIONS):
            text += (
                f"int {name}_{number}(int x, char *s) {{ int a[{chance.randrange(4, 64)}]; size_t n = strlen(s);\n"
                f"  for (int i = 0; i < x; i++) a[i % 4] = i * {chance.randrange(1000)} + (int)n;\n"
                f'  printf("%d %s\\n", a[0], s); return a[1] ^ {chance.randrange(1000)}; }}\n'
            )
        with open(os.path.join(project, "src", f"{name}.c"), "w", encoding="utf-8") as file:
            file.write(text)
    objects = " ".join(f"build/{name}.o" for name in names)
    with open(os.path.join(project, "Makefile"), "w", encoding="utf-8") as file:
        file.write(f"build/all.a: {objects}\n\tar rcs $@ $^\nbuild/%.o: src/%.c\n\tgcc -O1 -c -o $@ $<\n")
