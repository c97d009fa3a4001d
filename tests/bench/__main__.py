"""`python -m tests.bench [name…]`: every number of the issue, beside its raw limit and its peer.

It always ends with 0: a number that falls short is printed, not raised; the machine decides too much.
"""

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile

from tests.bench.measure import Table, Wishes
from tests.bench.report import as_json, machine, show, show_machine, summary

NAMES = (
    "effects", "writes", "growth", "scale", "trees", "startup", "entry", "boxes", "builds", "watches", "sessions",
    "sqlite", "postgres", "idle", "mariadb", "redis", "effects_postgres", "workflows", "recovery", "agents", "proof",
    "console", "policy",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    directory = tempfile.mkdtemp(prefix="takeback-bench-", dir=asked.dir)
    rounds = 3 if asked.quick else max(7, asked.rounds)
    wishes = Wishes(directory, rounds, asked.quick, asked.full)
    facts = machine(directory)
    facts["rounds"] = f"{rounds}, medians, in turns"
    if asked.quick:
        facts["quick"] = "a smoke test, not a measurement"
    show_machine(facts)
    tables: list[Table] = []
    try:
        for name in asked.names or NAMES:
            module = importlib.import_module(f"tests.bench.{name}")
            own = os.path.join(directory, name)
            os.mkdir(own)
            measured = module.measure(wishes._replace(directory=own))
            for table in (measured,) if isinstance(measured, Table) else measured:
                tables.append(table)
                show(table)
            sys.stdout.flush()
            shutil.rmtree(own)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    summary(tables)
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(as_json(facts, tables), file, indent=1)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"which tables: {', '.join(NAMES)}; all if none"
    )
    parser.add_argument("--dir", default="/var/tmp", help="a directory on a real disk; cleaned up afterwards")
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each; at least 7")
    parser.add_argument("--quick", action="store_true", help="small and few: does it run at all?")
    parser.add_argument("--full", action="store_true", help="also what takes minutes and gigabytes")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there as well")
    return parser


if __name__ == "__main__":
    sys.exit(main())
