"""Tests within a time: CI has ninety minutes, on a machine that is at times five times slower than at others.

`TAKEBACK_TESTS_UNTIL` (seconds since 1970) is when no further test is begun; what was not run is counted and named,
and fewer than `TAKEBACK_TESTS_AT_LEAST` percent fail the session. `TAKEBACK_TESTS_ORDER` is any text; with another text
other tests come first, so that it is not always the same ones that are left out.
"""

import hashlib
import os
import time

import pytest

OVER = "no time left"


class Within:
    def __init__(self) -> None:
        self.until = float(os.environ.get("TAKEBACK_TESTS_UNTIL", "inf"))
        self.order = os.environ.get("TAKEBACK_TESTS_ORDER", "")
        self.at_least = float(os.environ.get("TAKEBACK_TESTS_AT_LEAST", "0"))
        self.run: set[str] = set()
        self.left: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.order:
            items.sort(key=lambda item: hashlib.sha256(f"{self.order}{item.nodeid}".encode()).digest())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.time() > self.until:
            pytest.skip(OVER)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.run.add(report.nodeid)
        elif report.skipped and over(report):
            self.left.add(report.nodeid)

    def too_few(self) -> bool:
        both = len(self.run) + len(self.left)
        return bool(self.left) and len(self.run) * 100 < self.at_least * both

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.too_few() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left:
            terminalreporter.section("not begun: the time was over")
            both = len(self.run) + len(self.left)
            terminalreporter.line(
                f"{len(self.run):,} of {both:,} were run; at least {self.at_least:g} % must be."
            )
            for place in sorted({name.partition("::")[0] for name in self.left}):
                count = sum(name.startswith(place + "::") for name in self.left)
                terminalreporter.line(f"    {place}: {count}")


def over(report: pytest.TestReport) -> bool:
    return isinstance(report.longrepr, tuple) and report.longrepr[2].removeprefix("Skipped: ") == OVER
