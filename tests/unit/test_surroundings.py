"""The frame that the other tests stand on: it must keep them away from the user, and see every difference."""

import gc
import os
import re
import shutil
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.compiled import compile_test, is_compiled, place_of
from tests.mutation.mutants import MUTANTS
from tests.shares import EACH, files, has_turn
from tests.world import World


def test_no_test_can_reach_the_store_or_home_of_the_user(private_surroundings: Path) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "TAKEBACK_STORE"):
        assert os.environ[name].startswith(f"{private_surroundings}/")


def test_a_picture_of_an_untouched_world_is_the_same_again(world: World) -> None:
    (world / "a").write_text("one")
    os.symlink("a", world / "link")

    assert world.picture() == world.picture()


@pytest.mark.parametrize(
    "change",
    [
        "printf two > file; touch -d 2000-01-01 file",
        "chmod 600 file",
        "touch -d '2001-01-01 00:00:00.000000001' file",
        "cp -p file other",
        "ln file third",
        "ln -sfn elsewhere link",
        "rm twin && cp -p file twin",
        "mkdir empty",
        "mkfifo pipe",
        "dd if=/dev/zero of=hole bs=1M count=1 conv=notrunc status=none; touch -d 2000-01-01 hole",
        "rm file",
    ],
)
def test_a_picture_shows(world: World, change: str) -> None:
    prepare = (
        "printf one > file; ln file twin; ln -s file link; truncate -s 1M hole; touch -d 2000-01-01 file hole"
    )
    subprocess.run(prepare, shell=True, check=True, cwd=world.root)
    before = world.picture()

    subprocess.run(change, shell=True, check=True, cwd=world.root)

    assert world.picture() != before


def test_a_picture_shows_extended_attributes(world: World) -> None:
    (world / "file").touch()
    before = world.picture()

    os.setxattr(world / "file", "user.note", b"x")

    assert world.picture() != before


def run_pytest(
    directory: Path, test: str, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A small session of its own, under this project's conftest."""
    (directory / "test_it.py").write_text(f"import pytest\n\n{test}\n")
    (directory / "test_other.py").write_text("def test_that_passes(): pass\n")
    (directory / "conftest.py").write_text("from tests.conftest import *\n")
    (directory / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    root\n    slow\n    sampled\n    each_share\n"
        "    needs(*tools)\n    may_skip(why)\n    able(*what)\n"
    )
    inherited = {name: value for name, value in os.environ.items() if name != "CI" and "PYTEST" not in name}
    own = {"PYTHONPATH": str(Path(__file__).parents[2])}
    # In pytest's own directory it would take the rights away that ordinary users of other tests have there.
    words = ["-p", "no:cacheprovider", f"--basetemp={directory}/tmp", *options, str(directory)]
    if "-n" not in options:
        return run_in_a_fork(directory, words, inherited | own | environment)
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False, capture_output=True, text=True, cwd=directory,
        env=inherited | own | environment,
    )  # fmt: skip


def run_in_a_fork(
    directory: Path, words: list[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Everything is imported here; a process of its own would spend a second on that."""
    said = directory / "said"
    pid = os.fork()
    if not pid:
        code = 99
        try:
            os.chdir(directory)
            os.environ.clear()
            os.environ.update(environment)
            with said.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            sys.stdout, sys.stderr = (open(handle, "w", buffering=1, closefd=False) for handle in (1, 2))  # noqa: SIM115
            # What this session leaves to be collected, and how it takes warnings, is not the small one's.
            gc.freeze()
            warnings.resetwarnings()
            code = pytest.main(words)
            sys.stdout.flush()
        except BaseException:  # noqa: BLE001  the text is what the test shows
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return subprocess.CompletedProcess(words, code, said.read_text(), "")


SKIPS = "@pytest.mark.needs('no-such-tool')\ndef test_tool(): pass"


def test_a_skipped_test_is_named_with_its_reason(tmp_path: Path) -> None:
    session = run_pytest(tmp_path, SKIPS)

    assert session.returncode == 0, session.stdout + session.stderr
    assert "needs no-such-tool:\n    test_it.py::test_tool\n" in session.stdout


@pytest.mark.root
@pytest.mark.parametrize("processes", ["0", "2"])
def test_in_ci_a_skipped_test_fails_the_session(tmp_path: Path, processes: str) -> None:
    session = run_pytest(tmp_path, SKIPS, "-n", processes, CI="true")

    assert session.returncode == 1
    assert "1 skipped where nothing may be skipped" in session.stdout


@pytest.mark.root
def test_in_ci_a_module_that_skips_itself_fails_the_session(tmp_path: Path) -> None:
    session = run_pytest(tmp_path, "pytest.importorskip('no_such_module')\ndef test_it(): pass", CI="true")

    assert session.returncode == 1
    assert "no_such_module" in session.stdout


def test_a_test_that_may_skip_fails_nothing(tmp_path: Path) -> None:
    session = run_pytest(tmp_path, "@pytest.mark.may_skip('no loop devices')\n" + SKIPS, CI="true")

    assert session.returncode == 0, session.stdout + session.stderr
    assert "needs no-such-tool" in session.stdout


LAME = """
from tests import able
able._ABILITIES["wings"] = lambda: False

@pytest.mark.able("wings")
@pytest.mark.parametrize("case", range(3))
def test_flight(case): pass
"""


def test_what_a_machine_cannot_do_is_said_once(tmp_path: Path) -> None:
    session = run_pytest(tmp_path, LAME)

    assert session.returncode == 0, session.stdout
    assert "this machine has no wings: 3 tests not run\n" in session.stdout
    assert "test_flight" not in session.stdout


@pytest.mark.root
def test_in_ci_a_machine_must_be_able(tmp_path: Path) -> None:
    session = run_pytest(tmp_path, LAME, CI="true")

    assert session.returncode == 1
    assert "3 skipped where nothing may be skipped" in session.stdout


TABLE = """
@pytest.mark.sampled(3, always=("0",))
@pytest.mark.parametrize("case", range(7))
def test_case(case): pass

@pytest.mark.parametrize("case", range(4))
def test_whole(case): pass
"""


def ran(session: subprocess.CompletedProcess[str]) -> set[str]:
    assert session.returncode == 0, session.stdout + session.stderr
    return set(re.findall(r"test_it.py::(\S+) PASSED", session.stdout))


def other(session: subprocess.CompletedProcess[str]) -> int:
    return session.stdout.count("test_that_passes PASSED")


def test_a_sampled_table_runs_a_share_and_each_case_has_its_turn(tmp_path: Path) -> None:
    turns = [
        ran(run_pytest(tmp_path, TABLE, "-v", "-m", "not slow", TAKEBACK_TESTS_TURN=str(turn)))
        for turn in (6, 7, 8)
    ]

    assert set.union(*turns) == {f"test_case[{case}]" for case in range(7)} | set.intersection(*turns)
    assert set.intersection(*turns) == {"test_case[0]", *(f"test_whole[{case}]" for case in range(4))}
    assert [len(turn) for turn in turns] == [7, 7, 7]


def test_what_is_not_sampled_is_a_sweep_and_counted(tmp_path: Path) -> None:
    session = run_pytest(tmp_path, TABLE, "-m", "slow", "-v", TAKEBACK_TESTS_TURN="6")

    assert len(ran(session)) == 4
    assert "sampled tables: 3 of 7 cases, turn 6; the others are sweeps." in session.stdout


def test_a_share_of_the_sweeps_is_counted(tmp_path: Path) -> None:
    shares = [
        run_pytest(tmp_path, TABLE, "-m", "", "-v", TAKEBACK_TESTS_TURN=str(turn), TAKEBACK_TESTS_SHARE="2")
        for turn in (0, 1)
    ]

    assert len(ran(shares[0])) + len(ran(shares[1])) == len(ran(shares[0]) | ran(shares[1])) == 11
    assert f"sweeps: {len(ran(shares[1])) + other(shares[1])} of 12 ran, share 2 of 2." in shares[1].stdout


def test_the_tests_of_a_file_that_takes_turns_each_have_one(tmp_path: Path) -> None:
    (tmp_path / "tests/sql").mkdir(parents=True)
    (tmp_path / "tests/sql/test_waiting.py").write_text(
        "import pytest\n\nclass TestIt:\n    def test_in_a_class(self): pass\n"
        "@pytest.mark.parametrize('case', range(5))\ndef test_case(case): pass\ndef test_alone(): pass\n"
    )
    turns = [
        run_pytest(tmp_path, "", "-v", "-m", "not slow", TAKEBACK_TESTS_TURN=str(turn))
        for turn in range(EACH)
    ]
    found = [set(re.findall(r"test_waiting.py::(\S+) PASSED", one.stdout)) for one in turns]

    assert len(set.union(*found)) == sum(map(len, found)) == 7
    assert max(map(len, found)) <= 4


def test_each_file_that_takes_turns_is_there() -> None:
    named = files()
    here = Path(__file__).parents[1]

    assert [name for name in named if not (here / f"{name}.py").exists()] == []
    assert len(named) == len(set(named))


def test_what_notices_a_broken_rule_runs_each_time() -> None:
    suites = {mutant.suite[0].removeprefix("tests/").removesuffix(".py") for mutant in MUTANTS}

    assert suites & set(files()) == set()


MARKED = """
@pytest.mark.parametrize("case", [pytest.param(0, marks=pytest.mark.each_share), *range(1, 40)])
def test_case(case): pass
"""


def test_what_is_marked_runs_in_each_share_and_all_others_once(tmp_path: Path) -> None:
    shares = [
        ran(
            run_pytest(
                tmp_path, MARKED, "-m", "", "-v", TAKEBACK_TESTS_TURN=str(turn), TAKEBACK_TESTS_SHARE="4"
            )
        )
        for turn in (9, 10, 11, 12)
    ]

    assert set.union(*shares) == {f"test_case[{case}]" for case in range(40)}
    assert set.intersection(*shares) == {"test_case[0]"}
    assert sum(map(len, shares)) == 39 + 4


ROOT = Path(__file__).parents[2]


def clone(directory: Path) -> Callable[..., str]:
    """A repository with this project's `.ci/turn`; what is returned runs a program in it."""
    (directory / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/turn", directory / ".ci/turn")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAKEBACK_TESTS")}
    environment |= {"XDG_STATE_HOME": str(directory / "state")}

    def does(*words: str, **more: str) -> str:
        done = subprocess.run(
            words, cwd=directory, env=environment | more, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    does("git", "init", "--quiet")
    return does


def commits(does: Callable[..., str], number: int) -> None:
    for _ in range(number):
        person = ("-c", "user.name=a", "-c", "user.email=a@b")
        does("git", *person, "commit", "--quiet", "--allow-empty", "--message", "one")


def test_the_turn_of_ci_is_that_of_its_last_green_run_and_one_more(tmp_path: Path) -> None:
    does = clone(tmp_path)
    commits(does, 3)
    assert does(".ci/turn") == "3"
    does(".ci/turn", "next")
    commits(does, 4)
    assert does(".ci/turn") == does(".ci/turn") == "4", "after a run that failed it is the same"
    assert does(".ci/turn", TAKEBACK_TESTS_TURN="17") == "17"
    (tmp_path / "again").mkdir()
    assert clone(tmp_path / "again")(".ci/turn", XDG_STATE_HOME=str(tmp_path / "state")) == "4", (
        "cloned again"
    )
    for damage in ("", "x", "-1", "1 2"):
        (tmp_path / "state/takeback-ci/turn").write_text(damage)
        assert does(".ci/turn") == "7"


def test_four_green_runs_of_ci_play_each_agent_whole(tmp_path: Path) -> None:
    """However many commits are between them, and wherever they begin."""
    words = ("--collect-only", "-q", "-n", "0", "-m", "agents", "tests/agents")
    own = {"PYTHONPATH": str(ROOT)}
    inherited = {
        name: value
        for name, value in os.environ.items()
        if "PYTEST" not in name and not name.startswith("TAKEBACK_TESTS")
    }
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, env=inherited | own, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    names = {line for line in listed.splitlines() if "::" in line}
    does = clone(tmp_path)
    commits(does, 1)

    shares: list[set[str]] = []
    for landed in (4, 8, 1, 4):
        turn = int(does(".ci/turn"))
        shares.append({name for name in names if has_turn(name, turn, 4)})
        does(".ci/turn", "next")
        commits(does, landed)

    assert sum(map(len, shares)) == len(set.union(*shares)) == len(names)
    for agent in ("codex", "codex-script", "gemini", "opencode", "cursor"):
        of_it = {name for name in names if re.search(rf"\[{agent}(-[a-z]|\])", name)}
        assert len(of_it) > 30 and all(share & of_it for share in shares), agent


@pytest.mark.parametrize(("at_least", "code"), [("100", 1), ("0", 0)])
def test_a_session_whose_time_was_over_fails_where_every_test_must_run(
    tmp_path: Path, at_least: str, code: int
) -> None:
    session = run_pytest(tmp_path, TABLE, TAKEBACK_TESTS_UNTIL="1", TAKEBACK_TESTS_AT_LEAST=at_least)

    assert session.returncode == code
    assert f"0 of 12 were run; at least {at_least} % must be." in session.stdout


@pytest.mark.root
@pytest.mark.parametrize(
    ("test", "more", "is_whole"),
    [
        ("def test_it(): assert False", {}, True),
        (
            "def test_it(): assert False",
            {"TAKEBACK_TESTS_UNTIL": "1", "TAKEBACK_TESTS_AT_LEAST": "100"},
            False,
        ),
        (SKIPS + "\ndef test_it(): assert False", {}, False),
    ],
)
def test_a_session_in_which_tests_were_left_out_is_not_whole(
    tmp_path: Path, test: str, more: dict[str, str], is_whole: bool
) -> None:
    """What failed is tried again in CI; what was left out must not be forgotten over that."""
    note = tmp_path / "whole"

    session = run_pytest(tmp_path, test, CI="true", TAKEBACK_TESTS_WHOLE=str(note), **more)

    assert session.returncode == 1
    assert note.exists() is is_whole


def test_pytest_takes_what_was_compiled_before_it(tmp_path: Path, pytestconfig: pytest.Config):
    source = tmp_path / "test_it.py"
    source.write_text("def test_it():\n    assert 1 + 1 == 2\n")
    assert not is_compiled(source)
    compile_test(pytestconfig, source)
    assert is_compiled(source) and rewrite._read_pyc(source, place_of(source)) is not None
    source.write_text("def test_it():\n    assert 1 + 1 == 3\n")
    assert not is_compiled(source) and rewrite._read_pyc(source, place_of(source)) is None
