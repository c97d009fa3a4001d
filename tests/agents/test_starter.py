"""`takeback run` with a daemon and without: the command finds the same around itself, or it is not sent there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from takeback.frontends.agents.client import store_named, store_of_run
from takeback.storage.sqlite.store import default_path
from tests.agents.starters import LONG, SOURCE, Found, Person, Row, children, daemon_words, plain, sh
from tests.agents.talk import talking, until
from tests.sandbox.scenes import USER, make_home

pytestmark = [pytest.mark.real, pytest.mark.able("user namespaces")]


ROOT = pytest.param("root", marks=pytest.mark.root)


@pytest.fixture(scope="module", params=[ROOT, "user"])
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    """Both, if this is root; else oneself."""
    made = None
    if request.param == "user" and os.geteuid() == 0:
        made = make_home()
    directory = Path(tempfile.mkdtemp(prefix="takeback-starter-", dir=made.directory if made else None))
    python, library = (made.python, made.library) if made else (sys.executable, SOURCE)
    one = Person(directory, python, library, USER if made else 0)
    try:
        one.starts()
        yield one
    finally:
        one.ends()
        shutil.rmtree(made.directory if made else directory)


AROUND = (
    Row("as it is"),
    Row("umask", around=sh("umask 027")),
    Row("umask of others", around=sh("umask 0")),
    Row("nice", around=("nice", "-n", "5")),
    Row("a scheduler for what has time", around=("chrt", "-b", "0")),
    Row("io priority", around=("ionice", "-c", "3")),
    Row("one processor", around=("taskset", "-c", "0")),
    Row("a signal is ignored", around=sh("trap '' HUP USR1")),
    Row("INT is ignored", around=sh("trap '' INT")),
    Row("a signal is blocked", around=("env", "--block-signal=USR2")),
    Row("oom_score_adj", around=sh("echo 300 > /proc/self/oom_score_adj")),
    *(
        Row(f"limit {name}", around=("prlimit", f"--{name}={value}"))
        for name, value in (
            ("core", "0:0"), ("cpu", "100:200"), ("data", "2000000000:3000000000"), ("fsize", "100000000:200000000"),
            ("memlock", "4096:8192"), ("msgqueue", "1000:2000"), ("nice", "0:0"), ("nofile", "200:300"),
            ("nproc", "3000:4000"), ("rtprio", "0:0"), ("rttime", "1000000:2000000"), ("sigpending", "1000:2000"),
            ("stack", "4194304:8388608"), ("as", "4000000000:5000000000"), ("rss", "1000000000:2000000000"),
            ("locks", "100:200"),
        )
    ),
    Row("an odd environment", env={"A": "\udcff", "EMPTY": "", "LINES": "a\nb", "é": "ü"}),
    Row("another time zone and language", env={"TZ": "Asia/Tokyo", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}),
    Row("no locale at all", around=("env", "-u", "LC_ALL", "-u", "LANG")),
    Row("odd words", words=("", " a  b", "\udcfe\udcff", "--", "-x", "ü")),
    Row("a name", options=("--name", "some name")),
    Row("an agent", options=("--agent=robot",)),
    Row("held", options=("--hold",)),
    Row("only tried", options=("--dry-run",)),
    Row("as JSON", options=("--json",)),
    Row("quiet", options=("-q",)),
    Row("without network", options=("--no-network",)),
    Row("with time", options=("--timeout", "50")),
    Row("fails", env={"PROBE_END": "7"}),
    Row("fails and stays", env={"PROBE_END": "7"}, options=("--on-failure", "leave")),
    Row("is held when it fails", env={"PROBE_END": "7"}, options=("--on-failure", "hold")),
    Row("ends by a signal", env={"PROBE_END": "-9"}),
    Row("ends by a signal that dumps", env={"PROBE_END": "-11"}),
    Row("unbuffered", env={"PYTHONUNBUFFERED": "1"}),
    Row("another encoding", env={"PYTHONIOENCODING": "latin-1"}),
    # What cannot be taken on.
    Row("no new privileges", around=("setpriv", "--no-new-privs"), sent=False),
    Row("another personality", around=("setarch", "-R"), sent=False),
    Row("a namespace", around=("unshare", "--user", "--map-current-user", "--uts"), sent=False),
    Row("libraries are put before", env={"LD_BIND_NOW": "1"}, sent=False),
    Row("modules from elsewhere", env={"PYTHONPATH": "/nowhere"}, sent=False),
    Row("Python warns", env={"PYTHONWARNINGS": "error"}, sent=False),
    Row("below a watched command", env={"TAKEBACK_WATCH": "some"}, sent=False),
    Row("in place", options=("--in-place", "--any-root"), sent=False),
    Row("an option that does not exist", options=("--hodl",), sent=False),
)  # fmt: skip
OF_ROOT = (
    Row("more nice", around=("nice", "-n", "-5")),
    Row("real time", around=("chrt", "-r", "1")),
    Row("safe from the killer", around=sh("echo -500 > /proc/self/oom_score_adj")),
    Row("other groups", around=("setpriv", "--groups=5,6"), sent=False),
    Row("another group", around=("setpriv", "--regid=12", "--clear-groups"), sent=False),
    Row("fewer capabilities", around=("setpriv", "--bounding-set=-sys_time"), sent=False),
    Row("another mount namespace", around=("unshare", "--mount"), sent=False),
    Row("another host name", around=("unshare", "--uts"), sent=False),
)  # fmt: skip


@pytest.mark.parametrize("row", AROUND, ids=[row.name for row in AROUND])
def test_a_command_finds_the_same(person: Person, row: Row) -> None:
    _alike(person, row)


@pytest.mark.parametrize("person", [ROOT], indirect=True)
@pytest.mark.parametrize("row", OF_ROOT, ids=[row.name for row in OF_ROOT])
def test_a_command_of_root_finds_the_same(person: Person, row: Row) -> None:
    _alike(person, row)


def _alike(person: Person, row: Row, **more: Any) -> Found:
    without, there = (person.runs(row, with_daemon, **more) for with_daemon in (False, True))
    was_sent, never = there.seen.pop("sent", None), without.seen.pop("sent", None)
    for one in (there, without):
        one.seen.get("environment", []).sort()
        one.seen["environment"] = [pair for pair in one.seen.get("environment", []) if "WATCH" not in pair[0]]
    for name, value in there.seen.items():
        assert value == without.seen[name], name
    assert there == without
    assert not never
    if was_sent is not None:
        assert was_sent is row.sent
    return there


# Where it stands, and its input and output.


PLACES = (
    Row("by a link", around=sh("ln -sfn . link; cd -L link")),
    Row("by another name of it", around=sh("ln -sfn . link; cd -P link; PWD=/nowhere; export PWD")),
    Row("renamed under it", around=sh("mkdir -p old; cd old; rm -rf ../new; mv ../old ../new")),
    Row("removed under it", around=sh("mkdir -p gone; cd gone; rmdir ../gone"), sent=False),
    Row("no input", around=("sh", "-c", 'exec "$@" < /dev/null', "sh")),
    Row("input is closed", around=("sh", "-c", 'exec "$@" <&-', "sh"), sent=False),
    Row("output is closed", around=("sh", "-c", 'exec "$@" >&-', "sh"), sent=False),
    Row("errors are closed", around=("sh", "-c", 'exec "$@" 2>&-', "sh"), sent=False),
    Row("one file for both", around=("sh", "-c", 'exec "$@" >> both 2>&1', "sh")),
    Row("input is a file", around=("sh", "-c", 'exec "$@" < probe', "sh")),
    Row("no one reads", around=("sh", "-c", 'exec 3>&1; { "$@"; echo $? >&3; } | true', "sh")),
    Row("no one reads the answer", ("true",), ("sh", "-c", '{ "$@"; echo $? >&2; } | true', "sh"), ("--json",)),
)  # fmt: skip


@pytest.mark.parametrize("row", PLACES, ids=[row.name for row in PLACES])
def test_it_stands_where_its_caller_stands(person: Person, row: Row) -> None:
    (person.work / "probe").write_text("in a file\n")
    _alike(person, row)
    both = person.work / "both"
    if both.exists():
        said = plain(both.read_bytes(), [])
        assert said == said[: len(said) // 2] * 2
        both.unlink()


def test_what_it_reads_is_read_for_its_caller_too(person: Person) -> None:
    (person.work / "lines").write_bytes(b"1\n2\n3\n")
    for with_daemon in (False, True):
        with open(person.work / "lines", "rb", buffering=0) as file:
            found = person.runs(Row("", ("head", "-c", "2")), with_daemon, stdin=file)
            assert (found.out, file.read(2)) == ("1\n", b"2\n")


def test_at_a_terminal_it_is_not_sent(person: Person) -> None:
    for place in ("stdin", "stdout", "stderr"):
        ours, theirs = os.openpty()
        try:
            assert not person.runs(Row(""), True, **{place: theirs}).seen["sent"]
        finally:
            os.close(ours)
            os.close(theirs)


def test_with_a_terminal_that_it_does_not_use_it_is_not_sent(person: Person) -> None:
    import pty

    row = Row("", env={"PROBE_OUT": str(person.out)})
    words = [
        *person.rights,
        *person.words("run", "-q", "--", person.python, "-I", "-S", str(person.directory / "probe.py")),
    ]
    line = " ".join(map(_quoted, words))
    pid, ours = pty.fork()
    if not pid:
        os.chdir(person.work)
        os.execve(
            "/bin/sh", ["sh", "-c", f"{line} < /dev/null > /dev/null 2>&1"], person.environment(True, row.env)
        )
    os.waitpid(pid, 0)
    os.close(ours)
    assert not person.found(0, b"", b"", True).seen["sent"]


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


@pytest.mark.parametrize("person", [ROOT], indirect=True)
@pytest.mark.may_skip("control groups are mounted read-only, or not at all")
def test_it_counts_in_the_groups_of_its_caller(person: Person) -> None:
    made = _group()
    try:
        _alike(person, Row("", around=sh(f"echo $$ > {made}/cgroup.procs")))
    finally:
        until(lambda: not (made / "cgroup.procs").read_text())
        made.rmdir()


def _group() -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        point = next(
            (
                fields[1]
                for fields in map(str.split, Path("/proc/self/mounts").read_text().splitlines())
                if (fields[2] == "cgroup2" and not names)
                or (fields[2] == "cgroup" and names and names.split(",")[0] in fields[3].split(","))
            ),
            None,
        )
        if point and names != "cpuset":
            made = Path(f"{point}{path}") / f"takeback-test-{os.getpid()}"
            try:
                made.mkdir()
            except OSError:
                continue
            return made
    pytest.skip("no group can be made")


# Signals, and the end of each process.


HALF = (
    "sh",
    "-c",
    "echo half > half; grep -c agents.starter /proc/1/cmdline; read line; echo $line > whole; exit 3",
)


def _begun(person: Person, with_daemon: bool, **more: Any) -> "subprocess.Popen[bytes]":
    process = person.begins(Row("", HALF, **more), with_daemon)
    assert process.stdout and process.stdout.readline() == (b"1\n" if with_daemon else b"0\n")
    return process


def _drops(person: Person, with_daemon: bool) -> list[str]:
    """What `recover` and `log` tell; those of other tests are accepted."""
    said = _takeback(person, with_daemon, "recover", "--json")
    log = json.loads(_takeback(person, with_daemon, "log", "--json", "--all"))
    assert said
    return [one["state"] for one in log if "echo half" in one["summary"] and one["state"] == "dropped"]


def _until_dropped(person: Person, with_daemon: bool, count: int) -> None:
    until(lambda: len(_drops(person, with_daemon)) == count)


def _takeback(person: Person, with_daemon: bool, *words: str) -> str:
    done = subprocess.run(
        [*person.rights, *person.words(*words)], cwd=person.work, env=person.environment(with_daemon, {}), timeout=LONG,
        check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


ENDINGS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL", "SIGUSR1")


@pytest.mark.parametrize("name", ENDINGS)
def test_a_signal_ends_it_as_if_it_had_come_to_takeback(person: Person, name: str) -> None:
    found: list[tuple[int, str, int]] = []
    for with_daemon in (False, True):
        before = len(_drops(person, with_daemon))
        process = _begun(person, with_daemon)
        process.send_signal(signal.Signals[name])
        _, said = process.communicate(timeout=LONG)
        _until_dropped(person, with_daemon, before + 1)
        found.append((process.returncode, plain(said, []), 1))
        assert not (person.work / "half").exists()
    assert found[0] == found[1]


def test_a_signal_that_is_ignored_or_blocked_does_not_end_it(person: Person) -> None:
    for around in (("sh", "-c", "trap '' TERM; exec \"$@\"", "sh"), ("env", "--block-signal=TERM")):
        for with_daemon in (False, True):
            process = _begun(person, with_daemon, around=around)
            process.send_signal(signal.SIGTERM)
            process.communicate(b"more\n", timeout=LONG)
            assert process.returncode == 3


def test_it_is_stopped_with_its_caller_and_continues_with_it(person: Person) -> None:
    process = _begun(person, True)
    process.send_signal(signal.SIGTSTP)
    until(lambda: _state(process.pid) == "T")
    (child,) = children(person.starter())
    until(lambda: _state(child) == "T")
    process.send_signal(signal.SIGCONT)
    process.communicate(b"more\n", timeout=LONG)
    assert process.returncode == 3


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_without_the_daemon_it_continues_and_without_the_starter_it_is_in_doubt(person: Person) -> None:
    try:
        process = _begun(person, True)
        assert person.daemon
        starter = person.starter()
        person.daemon.kill()
        person.daemon.wait()
        process.communicate(b"more\n", timeout=LONG)
        assert process.returncode == 3
        until(lambda: not Path(f"/proc/{starter}").exists())

        assert not person.runs(Row(""), True).seen["sent"], "the socket is there, and no one listens"
        assert (person.store(True) / "hooks/socket").exists()
        person.starts()

        before = len(_drops(person, True))
        process = _begun(person, True)
        os.kill(person.starter(), signal.SIGKILL)
        _, said = process.communicate(timeout=LONG)
        assert process.returncode == 125
        assert b"in doubt" in said and b"takeback status" in said and b"takeback recover" in said
        _until_dropped(person, True, before + 1)
        assert not (person.work / "half").exists()
        until(lambda: person.runs(Row(""), True).seen["sent"])
    finally:
        person.ends()
        person.starts()


# What is recorded of it.


def test_it_is_recorded_as_its_callers(person: Person) -> None:
    told: list[list[Any]] = []
    for with_daemon in (False, True):
        for options, env in (
            ((), {}),
            (("--agent", "robot", "--name", "n"), {}),
            ((), {"TAKEBACK_AGENT": "other"}),
        ):
            person.runs(
                Row(
                    "",
                    ("sh", "-c", "echo $$ > recorded; rm recorded; mkdir -p d; echo x > d/x"),
                    options=options,
                    env=env,
                ),
                with_daemon,
            )
        log = json.loads(_takeback(person, with_daemon, "log", "--json"))
        told.append(
            [
                [one[name] for name in ("agent", "summary", "state", "accepted", "kind", "adapter")]
                for one in log[:3]
            ]
        )
    assert told[0] == told[1]


def test_nothing_of_takeback_is_loaded_while_someone_waits(person: Person) -> None:
    loaded = person.store(True) / "hooks/loaded"
    loaded.unlink(missing_ok=True)
    for command in ("true", "echo $$ > new; mkdir -p sub; echo $$ > sub/more", "rm new; false"):
        person.runs(Row("", ("sh", "-c", command)), True)
    assert loaded.read_text() == "\n" * 3


def test_whoever_ran_it_a_watch_of_an_agent_sees_nothing_of_it(tmp_path: Path) -> None:
    """Neither by the agent in its call, nor by someone beside it; what else they do counts as before."""
    words = daemon_words(sys.executable, SOURCE, Path(os.environ["TAKEBACK_STORE"]))
    daemon = subprocess.Popen(words, cwd="/", start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        with talking(tmp_path) as talk:
            until((talk.store / "hooks/socket").exists)
            run = f"{sys.executable} -m takeback run -q -- sh -c"
            (talk.project / "d").mkdir()
            talk.starts()
            talk.prompts("go")
            assert talk.daemon() == daemon.pid
            is_sent = f"{run} 'grep -q agents.starter /proc/1/cmdline'"
            until(
                lambda: (
                    subprocess.run(
                        is_sent,
                        shell=True,
                        stdin=-3,
                        stdout=-3,
                        stderr=-3,
                        start_new_session=True,
                        check=False,
                    ).returncode
                    == 0
                )
            )
            talk.shell(f"{run} 'echo a > d/a; echo agent >> d/both'")
            talk.shell("true", meanwhile=f"{run} 'cd {talk.project}; echo b > d/b'")
            talk.shell(f"echo c > c; {run} 'echo d > d/d'", meanwhile="echo e > e")
            told = {
                one.change.summary: [path.resource.rpartition("/")[2] for path in one.targets]
                for one in talk.effects()
            }
            watched = {name: paths for name, paths in told.items() if not name.startswith("sh -c")}
            assert sorted(path for paths in watched.values() for path in paths) in (["c"], ["c", "d"]), (
                told
            )  # the time of a directory
            assert sum(name.startswith("sh -c") for name in told) == 3
            if talk.knows:
                assert not any(
                    one.change.facts.others for one in talk.effects() if "d" in told[one.change.summary]
                )
    finally:
        daemon.kill()
        daemon.wait()


# Which command lines are sent, and where to.


SENT = (
    "run -- x",
    "run --hold --name n -- x -y",
    "--json run --timeout=3 -q -- x --in-place",
    "--store {store} run -- x",
)
KEPT = (
    "run x", "run --", "run", "log -- x", "run --in-place -- x", "run --sql env:A -- x", "run --ask -- x",
    "run --root . -- x", "run --any-root -- x", "run --help -- x", "run -h -- x", "--version run -- x",
    "run --name -- x", "run --store= -- x", "run --name= -- x", "--store run -- x", "run more -- x", "help run -- x",
    "run --hold=1 -- x", "run --store ~other/s -- x", "run --store postgresql://h/d -- x",
)  # fmt: skip


@pytest.mark.parametrize("line", SENT)
def test_a_run_in_a_sandbox_is_sent(line: str, store: Path) -> None:
    assert store_of_run(line.format(store=store).split()) == str(store)


@pytest.mark.parametrize("line", KEPT)
def test_any_other_command_line_is_not(line: str) -> None:
    assert store_of_run(line.split()) is None


@pytest.mark.parametrize("named", ["", "rel", "/abs", "~/s", "~", "~/"])
@pytest.mark.parametrize("state", ["", "rel", "/state"])
@pytest.mark.parametrize("home", ["/home/x", "rel"])
def test_the_store_is_the_one_of_the_command_line(
    named: str, state: str, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("TAKEBACK_STORE", named), ("XDG_STATE_HOME", state), ("HOME", home)):
        monkeypatch.setenv(name, value)
    found = store_named()
    assert found is None or found.rstrip("/") == default_path().rstrip("/")
    assert found or named == "~" or home == "rel"
