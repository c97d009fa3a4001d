"""What it costs to start, and what is loaded when."""

import os
import subprocess
import sys

import takeback
from tests.bench.measure import Line, Table, Wishes, in_turns, processor_time, takeback_command, wall_time

# None of these has a part in writing a file; each costs milliseconds.
NOT_FOR_A_WRITE = {
    "argparse", "asyncio", "concurrent.futures", "dataclasses", "difflib", "email", "http", "inspect",
    "logging", "multiprocessing", "pathlib", "ruamel.yaml", "shutil", "socket", "subprocess", "tempfile",
    "tomlkit", "tomllib", "unittest", "urllib.request", "uuid",
}  # fmt: skip
LOADED = "import sys; before = set(sys.modules); {}; print(*sorted(set(sys.modules) - before), sep='\\n')"
WRITE = "import takeback; tb = takeback.open({store!r}); run = tb.run('x'); run.write({path!r}, 'text'); run.close()"


def measure(wishes: Wishes) -> Table:
    store = os.path.join(wishes.directory, "store")
    with takeback.open(store) as tb, tb.run("bench") as run:
        for number in range(20):
            run.write(os.path.join(wishes.directory, f"{number}.txt"), f"{number}\n")
    bare = [sys.executable, "-I", "-c", "pass"]
    command = takeback_command()
    environment = os.environ | {"TAKEBACK_STORE": store}
    taken = in_turns(
        {
            "bare": lambda: wall_time(bare),
            "not isolated": lambda: wall_time([sys.executable, "-c", "pass"]),
            "import": lambda: wall_time([sys.executable, "-c", "import takeback"], environment),
            "log": lambda: wall_time([*command, "log"], environment),
        },
        3 * wishes.rounds,
    )
    worked = in_turns(
        {
            "bare": lambda: processor_time([sys.executable, "-c", "pass"]),
            "log": lambda: processor_time([*command, "log"], environment),
            "run": lambda: processor_time([*command, "run", "--", "true"], environment),
        },
        3 * wishes.rounds,
    )
    imported = _modules("import takeback")
    written = _modules(WRITE.format(store=store, path=os.path.join(wishes.directory, "more.txt")))
    lines = (
        Line(
            "takeback log (20 effects)", taken["log"], "s", "python3 -I -c pass", taken["bare"], 5.0, "cost"
        ),
        Line("import takeback", taken["import"], "s", "python3 -I -c pass", taken["bare"], None, "cost"),
        Line(
            "python3 -c pass", taken["not isolated"], "s", "python3 -I -c pass", taken["bare"], None, "cost"
        ),
        # 75 ms where a bare interpreter takes 15, and 200 ms where it takes 17.
        Line("takeback log, processor", worked["log"], "s", "python3 -c pass", worked["bare"], 5.0, "cost"),
        Line(
            "takeback run -- true, processor",
            worked["run"],
            "s",
            "python3 -c pass",
            worked["bare"],
            11.75,
            "cost",
        ),
        Line("modules that import takeback loads", len(imported), ""),
        Line(
            "  of them not needed for a write",
            len(imported - written) + len(imported & NOT_FOR_A_WRITE),
            "",
            bar=0,
        ),
        Line("modules loaded after a write", len(written), ""),
        Line("  of them known to be heavy", len(written & NOT_FOR_A_WRITE), "", bar=0),
    )
    notes = [
        f"started as: {' '.join(command)[:90]}",
        f"import takeback loads: {', '.join(sorted(imported)) or 'nothing'}",
    ]
    if heavy := sorted(written & NOT_FOR_A_WRITE):
        notes.append(f"heavy after a write: {', '.join(heavy)}")
    return Table(
        "Start-up (ratio of wall times, or of processor times where said; lower is better)",
        lines,
        tuple(notes),
    )


def _modules(statements: str) -> set[str]:
    """What these statements load into a fresh interpreter."""
    program = LOADED.format(statements)
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(ended.stdout.split())
