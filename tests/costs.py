"""What each test costs: `pytest -p tests.costs …` prints seconds of the processor and of the clock by file.

A test that starts programs and servers pays for them too: each worker counts in a group of its own (cgroup), which the
kernel keeps for all that its processes start. Without such groups only what was waited for counts.
`TAKEBACK_TESTS_COSTS=FILE` adds one line to this file at the end of each test: processor, clock, name. So a session
that is broken off has told what it knew.
"""

import os
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

GROUPS = Path("/sys/fs/cgroup/cpuacct")


class Costs:
    def __init__(self) -> None:
        self.group = GROUPS / f"takeback-tests-{os.getpid()}"
        self.lines: list[tuple[float, float, str]] = []
        with suppress(OSError):
            self.group.mkdir()
            (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def processor(self) -> float:
        try:
            return int((self.group / "cpuacct.usage").read_text()) / 1e9
        except OSError:
            return sum(os.times()[:4])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        processor, clock = self.processor(), time.monotonic()
        try:
            return (yield)
        finally:
            self.lines.append((self.processor() - processor, time.monotonic() - clock, item.nodeid))
            if place := os.environ.get("TAKEBACK_TESTS_COSTS"):
                processor, clock, name = self.lines[-1]
                with open(place, "a") as file:
                    file.write(f"{processor:.3f} {clock:.3f} {name}\n")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            whole = self.processor() - sum(processor for processor, _, _ in self.lines)
            session.config.workeroutput["costs"] = [*self.lines, (whole, 0.0, "(start, collection)")]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.lines += getattr(node, "workeroutput", {}).get("costs", [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        for processor, clock, name in self.lines:
            for key in (name.partition("::")[0], "/".join(name.split("/")[:2]) + "/", "all"):
                files[key] = [sum(pair) for pair in zip(files[key], (processor, clock, 1), strict=True)]
        terminalreporter.section("costs: processor, clock, tests")
        for name, (processor, clock, tests) in sorted(files.items(), key=lambda cost: -cost[1][0]):
            terminalreporter.line(f"{processor:9.1f} {clock:9.1f} {tests:6.0f}  {name}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(), "costs")
