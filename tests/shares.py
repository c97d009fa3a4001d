"""Which cases run: some of a large table in `make test`, all of it in the sweeps.

`@pytest.mark.sampled(6)`: one in six of the cases of a test runs in `make test`; the others count as `slow`. The share
changes with the turn, so that six turns run each case once. `always=("a scene",)` names cases for each time, and
`only=("killed",)` lets every test of a class run whole whose name holds none of these words. With `whole=True` all
marked cases of a class, or of a file, are one table: laws that others run whole.
Files in `FILES` are such tables too: their tests are about single cases, most of them found once by somebody.
`TAKEBACK_TESTS_SHARE=6`: one in six of all that is selected, and what is marked `each_share`; CI has time for such a
share of the sweeps, and of the scenes of coding agents. Six turns run each of them once.
The turn is `TAKEBACK_TESTS_TURN`, in CI one more than in the last green run (`.ci/turn`), else the number of commits;
-1 leaves what runs each time.
"""

import os
import subprocess
import zlib
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

TURN = "TAKEBACK_TESTS_TURN"
# Of these files, `test_` before each name, one test in five; what is marked itself keeps its own share.
# TAKEBACK_TESTS_EACH=1 runs all of them.
EACH = int(os.environ.get("TAKEBACK_TESTS_EACH", "5"))
FILES = {
    "agents": "claude_sdk daemon guard hook_commands hook_installing sandbox_alone sessions shims subagents",
    "behaviour": "drops hostile_stores merge_undo",
    "boxes": "box box_adapter box_commit box_retention box_telling shell",
    "calls": "actions failing_store in_doubt",
    "crash": "signals storage_faults",
    "e2e": """
        changes drops dry_runs fresh_eyes fresh_eyes_manners full_store killed_command looking manners
        progress projects prompts rehearse remote_store rewind run_words running running_as_user second_eyes_drops
        second_eyes_paths some_paths sql stuck taking_back telling terminal unprotect upkeep
    """,
    "git": "git_killed git_objects git_some_paths git_undo",
    "rehearse": "as_user calls due files killed plans",
    "proof": "audit_commands bundle places questions",
    "remote": "copying many_runs reconnecting",
    "sandbox": "command",
    "sql": """
        mariadb mariadb_bare mariadb_definitions mariadb_programs mariadb_refusing misused postgres
        postgres_attachment postgres_findings postgres_guest postgres_owner postgres_programs
        postgres_review postgres_schema postgres_tables postgres_trips postgres_types postgres_unseen
        postgres_wide rehearse review run_program run_sql sqlite_loose_ends sqlite_own_tables sqlite_programs
        sqlite_sessions sqlite_shadows sqlite_small sqlite_undo undone_together unprotect_killed waiting
    """,
    "trees": "strangers",
    "unit": "blobs_storage",
    "watch": "feeds in_place",
    "workflows": "attention replay waiting workers",
}
ROOT = Path(__file__).parents[1]


class Shares:
    def __init__(self) -> None:
        # Set before workers are started: they must all select the same.
        os.environ.setdefault(TURN, str(commits()))
        self.turn = int(os.environ[TURN])
        self.share = int(os.environ.get("TAKEBACK_TESTS_SHARE", "1"))
        self.counts: dict[str, Any] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Before pytest selects by markers, and after it has."""
        self._mark(items)
        yield
        if self.share > 1:
            self._take_a_share(config, items)

    def _mark(self, items: list[pytest.Item]) -> None:
        tables: dict[str, list[pytest.Item]] = {}
        of_files = {f"tests/{name}.py" for name in files()}
        for item in items:
            marker = item.get_closest_marker("sampled")
            name, file = item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]
            if not marker and file in of_files:
                item.add_marker(marker := pytest.mark.sampled(EACH))
                name = file
            if not marker or any(map(item.get_closest_marker, ("slow", "long"))):
                continue
            if any(word in name.rpartition("::")[2] for word in marker.kwargs.get("only", ("",))):
                if marker.kwargs.get("whole"):
                    name = name.rpartition("::")[0]
                tables.setdefault(name, []).append(item)
        chosen = 0
        for name, table in tables.items():
            kept = chosen_of(name, table, self.turn)
            chosen += len(kept)
            for item in table:
                if item not in kept:
                    item.add_marker("slow")
        self.counts["sampled"] = chosen, sum(map(len, tables.values()))

    def _take_a_share(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        self.counts["selected"] = len(items)
        kept = {
            item
            for item in items
            if item.get_closest_marker("each_share") or has_turn(item.nodeid, self.turn, self.share)
        }
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["shares"] = self.counts

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.counts |= getattr(node, "workeroutput", {}).get("shares", {})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        chosen, cases = self.counts.get("sampled", (0, 0))
        if chosen < cases and not self.counts.get("selected"):
            terminalreporter.line(
                f"sampled tables: {chosen:,} of {cases:,} cases, turn {self.turn:,}; the others are sweeps."
            )
        if selected := self.counts.get("selected"):
            ended = {
                report.nodeid
                for kind in ("passed", "failed", "error")
                for report in terminalreporter.getreports(kind)
            }
            part = self.turn % self.share + 1
            terminalreporter.line(
                f"sweeps: {len(ended):,} of {selected:,} ran, share {part} of {self.share}."
            )


def has_turn(name: str, turn: int, share: int) -> bool:
    """Once in as many turns."""
    return (zlib.crc32(name.encode()) + turn) % share == 0


def files() -> list[str]:
    return [f"{folder}/test_{name}" for folder, names in FILES.items() for name in names.split()]


def chosen_of(name: str, table: list[pytest.Item], turn: int) -> set[pytest.Item]:
    """Tests that share a table begin at different cases, so that each case meets some of them."""
    marker = table[0].get_closest_marker("sampled")
    assert marker, name
    always: tuple[str, ...] = marker.kwargs.get("always", ())
    first = {item for item in table if item.name.endswith(tuple(f"[{case}]" for case in always))}
    assert len(first) == len(always), f"{name} has not all of {always}"
    if turn < 0:
        return first
    others = [item for item in table if item not in first]
    each = min(marker.args[0], len(others)) or 1
    return first | set(_each(each, others, turn + zlib.crc32(name.encode())))


def _each(each: int, items: list[pytest.Item], start: int) -> Iterable[pytest.Item]:
    return (item for place, item in enumerate(items) if (place + start) % each == 0)


def commits() -> int:
    """How many lead to this one; 0 where git cannot tell."""
    asked = ["git", "-c", "safe.directory=*", "rev-list", "--count", "HEAD"]
    try:
        told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return 0
    return int(told.stdout or "0")
