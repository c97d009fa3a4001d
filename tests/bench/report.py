"""What is printed: the machine, then each table with its bars, then what falls short."""

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.bench.measure import Line, Table

NOT_A_DISK = ("tmpfs", "ramfs", "overlay")


def machine(directory: str) -> dict[str, str]:
    """What the numbers depend on."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cores": f"{len(os.sched_getaffinity(0))}, {platform.machine()}, load {os.getloadavg()[0]:.1f}",
        "kernel": platform.release(),
        "filesystem": f"{filesystem_of(directory)} ({directory})",
        "python": f"{platform.python_version()} ({sys.executable})",
        "sqlite": sqlite3.sqlite_version,
        "git": _git(),
        "user": "root" if os.geteuid() == 0 else "not root",
    }


def _git() -> str:
    if not shutil.which("git"):
        return "none"
    return subprocess.run(["git", "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]


def filesystem_of(directory: str) -> str:
    """By the longest mount point above it."""
    path, best, found = os.path.realpath(directory), "", "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        for line in table:
            left, _, right = line.partition(" - ")
            point = left.split()[4]
            if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
                best, found = point, right.split()[0]
    return found


def show_machine(facts: dict[str, str]) -> None:
    for name, value in facts.items():
        print(f"{name:<12}{value}")
    if facts["filesystem"].startswith(NOT_A_DISK):
        print("warning: this is no real disk, so durable writes cost nothing here; choose another with --dir")


def show(table: Table) -> None:
    print(f"\n{table.title}")
    rows = [("", "ours", "against", "", "ratio", "bar", "")]
    rows += [_cells(line) for line in table.lines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        left = row[0].ljust(widths[0])
        rest = [
            cell.ljust(width) if column in (1, 5) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row[1:], widths[1:], strict=True))
        ]
        print("  " + "  ".join([left, *rest]).rstrip())
    for note in table.notes:
        print(f"  · {note}")


def _cells(line: Line) -> tuple[str, ...]:
    ratio = "" if line.ratio is None else f"{line.ratio:.2f} x"
    reference = amount(line.reference, line.unit) if line.against else ""
    return (
        line.what,
        amount(line.ours, line.unit),
        line.against,
        reference,
        ratio,
        _bar(line),
        _verdict(line),
    )


def _bar(line: Line) -> str:
    if line.bar is None:
        return ""
    if line.ratio is None:
        return f"<= {amount(line.bar, line.unit)}"
    return f"{'>=' if line.rule == 'speed' else '<='} {line.bar:g} x"


def _verdict(line: Line) -> str:
    return "" if line.bar is None else "SHORT" if line.short else "ok"


def amount(value: float, unit: str) -> str:
    if unit == "s":
        if value < 1e-4:
            return f"{value * 1e6:,.2f} µs"
        return f"{value * 1000:,.2f} ms" if value < 10 else f"{value:,.1f} s"
    if unit == "B":
        for size, name in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "KB")):
            if abs(value) >= size:
                return f"{value / size:,.2f} {name}"
        return f"{value:,.0f} B"
    return f"{value:,.0f}"


def summary(tables: Sequence[Table]) -> None:
    judged = [line for table in tables for line in table.lines if line.bar is not None]
    short = [line for line in judged if line.short]
    print(f"\n{len(judged) - len(short)} of {len(judged)} bars are met.")
    for line in short:
        print(f"  SHORT: {line.what} ({_cells(line)[4] or amount(line.ours, line.unit)}, bar {_bar(line)})")


def as_json(facts: dict[str, str], tables: Sequence[Table]) -> dict[str, Any]:
    return {
        "machine": facts,
        "tables": [{"title": t.title, "lines": list(_plain(t)), "notes": t.notes} for t in tables],
    }


def _plain(table: Table) -> Iterator[dict[str, Any]]:
    for line in table.lines:
        yield line._asdict() | {"ratio": line.ratio, "short": line.short if line.bar is not None else None}
