"""Coding agents: what our hooks add to a call, what the daemon takes, how long it takes to go back.

Beside it in the same run: the same calls without hooks, with hooks that do nothing, one effect, git.
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from takeback.frontends.agents.settings import compiled_shim as compiled_beside
from takeback.frontends.agents.settings import prefix_path, shim_path
from tests.agents.acts import DAEMON, daemons
from tests.agents.family import Hooks, Shell
from tests.agents.play import Act, Now, Prompt, Scene, play
from tests.agents.shims import FakeDaemon, compiled_shim, words_of
from tests.agents.stage import clear, git
from tests.agents.talk import Talk, talking, until
from tests.bench.measure import Line, Table, Wishes, seconds_of

FEW, MANY = 200, 50_000
_CALLS = 15
_NONE, _EMPTY, _OURS = "without hooks", "hooks that run /bin/true", "ours"


def measure(wishes: Wishes) -> Table:
    lines: list[Line] = []
    notes = (
        "a call of Claude Code: from the moment that the model has said it to the moment that its result is there",
        "daemon: its own processor time and resident memory; the shims are processes of their own",
        "undo: the whole command, from its start to its end",
    )
    sizes = (FEW, MANY) if wishes.full else (FEW,)
    with surroundings(Path(wishes.directory)):
        for files in sizes:
            lines += _in_claude_code(wishes, files)
        for files in sizes:
            lines += _daemon(wishes, files)
        lines += _carried_out(wishes)
        if wishes.full:
            lines += _first_prompt(wishes)
        lines += _ways_back(wishes)
    return Table("Coding agents: what following them costs", tuple(lines), notes)


@contextmanager
def surroundings(directory: Path) -> Iterator[None]:
    """A home and a store of our own, and nothing of the user's git; no daemon stays."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("TAKEBACK_", "XDG_", "GIT_"))]:
        del os.environ[name]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    (directory / "home").mkdir(exist_ok=True)
    os.environ |= {
        "HOME": str(directory / "home"), "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8", "TAKEBACK_STORE": str(directory / "store"),
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
    }  # fmt: skip
    try:
        yield
    finally:
        for process in daemons(str(directory)):
            os.kill(process, 9)
        os.environ.clear()
        os.environ.update(before)


def takeback(*words: str, home: Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "takeback", *words], cwd=cwd, env={**os.environ, "HOME": str(home)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def plant(project: Path, files: int) -> Path:
    """4 KB each, in directories of 100, committed."""
    project.mkdir(parents=True)
    for number in range(files):
        place = project / file_of(number)
        if number % 100 == 0:
            place.parent.mkdir(parents=True)
        place.write_text(f"file {number}\n" * (4096 // len(f"file {number}\n")))
    git(project, "init", "--quiet")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "first")
    return project


def file_of(number: int) -> str:
    return f"d{number // 100:03}/f{number}.txt"


@contextmanager
def _store(directory: Path) -> Iterator[None]:
    """A new one, and no daemon of it afterwards."""
    directory.mkdir()
    before, os.environ["TAKEBACK_STORE"] = os.environ["TAKEBACK_STORE"], str(directory / "store")
    try:
        yield
    finally:
        for process in daemons(str(directory)):
            os.kill(process, 9)
        os.environ["TAKEBACK_STORE"] = before


# Calls in the real agent.


def _in_claude_code(wishes: Wishes, files: int) -> list[Line]:
    directory = Path(wishes.directory, f"claude-{files}")
    taken: dict[str, list[float]] = {name: [] for name in (_NONE, _EMPTY, _OURS)}
    with _store(directory):
        project = plant(directory / "project", files)
        homes = {name: directory / f"home-{number}" for number, name in enumerate(taken)}
        for home in homes.values():
            home.mkdir()
        done = takeback("hook", "install", "claude-code", home=homes[_OURS], cwd=project)
        assert done.returncode == 0, done.stderr
        try:
            for turn in range((1 if wishes.quick else min(wishes.rounds, 5)) + 1):
                for name, home in homes.items():
                    found = _calls(home, project, _nothing() if name == _EMPTY else None)
                    taken[name] += found if turn else []
        finally:
            for home in homes.values():
                clear(home)
    middle = {name: statistics.median(values) for name, values in taken.items()}
    shim = "compiled" if compiled_beside() else "Python"
    added, least = middle[_OURS] - middle[_NONE], middle[_EMPTY] - middle[_NONE]
    what = f"added to a shell call in Claude Code, {files:,} files"
    return [
        Line(what, added, "s", f"by {_EMPTY}", least, None, "cost"),
        Line(
            f"  bar of the {shim} shim" if files == FEW else "  bar with a feed",
            added,
            "s",
            bar=0.060 if shim == "Python" else 0.035,
        ),
        Line("  the whole call", middle[_OURS], "s", _NONE, middle[_NONE], None, "cost"),
    ]


def _nothing() -> Hooks:
    return Hooks(("/bin/true",), events=("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"))


def _calls(home: Path, project: Path, hooks: Hooks | None) -> list[float]:
    """How long each took; the first does not count."""
    moments: list[float] = []
    turns = tuple((Shell(f"echo {number} >> {file_of(number)}"),) for number in range(_CALLS + 1))

    def stamp(now: Now) -> None:
        moments.append(time.perf_counter())

    between: dict[tuple[str, int], Act] = {("work", turn): stamp for turn in range(1, len(turns) + 1)}
    play("claude-code", Scene("bench", (Prompt("work", turns),), {}, between=between), home, project, hooks)
    return [later - one for one, later in pairwise(moments)]


# The daemon.


def processor(process: int) -> float:
    """All that it has used until now, its threads that have ended included: the kernel's clock of a process."""
    return time.clock_gettime((~process << 3) | 2)


def memory(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


def _daemon(wishes: Wishes, files: int) -> list[Line]:
    calls = 20 if wishes.quick else 200
    more = 1000 - calls if files == MANY else 0
    directory = Path(wishes.directory, f"daemon-{files}")
    before: list[float] = []
    after: list[float] = []
    with _store(directory):
        plant(directory / "project", files)
        with talking(directory) as talk:
            looked_at(talk)
            idle = memory(talk.daemon())
            for number in range(10):
                _call(talk, number, [], [])
            used = processor(talk.daemon())
            for number in range(calls):
                _call(talk, number, before, after)
            used = (processor(talk.daemon()) - used) / calls
            least = _raw(talk, calls)
            for number in range(more):
                _call(talk, calls + number, [], [])
            grown = memory(talk.daemon())
    nothing, shims = _started_for_nothing(), _shims(directory, 15 if wishes.quick else 60)
    bar = 0.006 if files == FEW else None
    return [
        Line(f"daemon: processor time of a call that changes 4 KB, {files:,} files", used, "s", bar=bar),
        Line("  against what it is at least", used, "s", "two syncs, a look, a hash", least, None, "cost"),
        Line(
            "  Python shim before the call",
            statistics.median(before),
            "s",
            "python -I -S",
            nothing,
            None,
            "cost",
        ),
        Line(
            "  Python shim after the call",
            statistics.median(after),
            "s",
            "python -I -S",
            nothing,
            None,
            "cost",
        ),
        *shims,
        Line(f"daemon: memory after the first look, {files:,} files", idle, "B", bar=80e6),
        Line(f"daemon: memory after {calls + more:,} calls", grown, "B", "before them", idle, 1.1, "cost"),
        Line("  of all", grown, "B", bar=80e6),
    ]


def looked_at(talk: Talk) -> float:
    """Begins a conversation; how long the first shell call waited for the first look."""
    talk.starts()
    talk.prompts("work")
    start = time.perf_counter()

    def is_let_through() -> bool:
        said, call = talk.before("Bash", {"command": "true"})
        assert not said.refusal or "first look" in said.refusal, said.refusal
        if not said.refusal:
            calls.append(call)
        return not said.refusal

    calls: list[str] = []
    until(is_let_through, seconds=600)
    waited = time.perf_counter() - start
    talk.after("Bash", {"command": "true"}, calls[0])
    return waited


def _call(talk: Talk, number: int, before: list[float], after: list[float]) -> None:
    given = {"command": f"head -c 4096 /dev/urandom > {file_of(number % FEW)}"}
    start = time.perf_counter()
    said, call = talk.before("Bash", given)
    middle = time.perf_counter()
    assert not said.refusal, said.refusal
    talk.agent.does(given["command"])
    again = time.perf_counter()
    talk.after("Bash", given, call)
    before.append(middle - start)
    after.append(time.perf_counter() - again)


def _raw(talk: Talk, calls: int) -> float:
    """Processor time of what no recording does without: the file is read, hashed and kept, the record is written."""
    import hashlib

    kept, record = talk.place / "kept", talk.place / "record"
    start = time.process_time()
    for number in range(calls):
        place = talk.project / file_of(number % FEW)
        os.lstat(place)
        content = place.read_bytes()
        with open(f"{kept}-{hashlib.sha256(content).hexdigest()}", "wb") as file:
            file.write(content)
            os.fsync(file.fileno())
        with open(record, "ab") as file:
            file.write(b"x" * 500)
            os.fsync(file.fileno())
    return (time.process_time() - start) / calls


def _shims(directory: Path, times: int) -> list[Line]:
    """Both hook programs in turns, with a daemon that answers at once: clock and processor time."""
    programs: dict[str, Path | None] = {"Python": None, "compiled": None}
    try:
        programs["compiled"] = compiled_shim(directory / "shim")
    except AssertionError:
        del programs["compiled"]  # no compiler
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    store = directory / "answers at once"
    environment = {**os.environ, "TAKEBACK_STORE": str(store)}
    with FakeDaemon(store, [b"0 3 0\n{}\n"]):
        for turn in range(times + 1):
            for name, compiled in programs.items():
                words = words_of(compiled, shim_path(), "claude-code", "PreToolUse")
                used, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
                subprocess.run(
                    words, input=b"x" * 4096, env=environment, stdout=subprocess.DEVNULL, check=True
                )
                clock, now = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
                processor = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
                taken[name] += [(clock, processor)] if turn else []
    middle = {
        name: [statistics.median(one) for one in zip(*values, strict=True)] for name, values in taken.items()
    }
    lines: list[Line] = []
    for at, what in enumerate(("clock", "processor time")):
        for name, values in middle.items():
            more = ("the Python one", middle["Python"][at], None, "cost") if name != "Python" else ()
            lines.append(
                Line(f"  {name} shim and a daemon that answers at once: {what}", values[at], "s", *more)
            )
    return lines


# `takeback run`, and a command in mode `sandbox`, with a daemon that has a starter and without.


def _carried_out(wishes: Wishes) -> list[Line]:
    place = Path(wishes.directory, "carried out")
    place.mkdir()
    stores = {"without a daemon": place / "none", "by the starter": place / "some"}
    code = "import sys; from takeback.frontends.agents.daemon import main; main(sys.argv[1])"
    daemon = subprocess.Popen([sys.executable, "-c", code, str(stores["by the starter"]), DAEMON], cwd="/")
    try:
        starter = _starter(daemon, place, stores["by the starter"])
        memories = memory(daemon.pid), memory(starter)
        lines: list[Line] = []
        for what, words in _commands(place).items():
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in stores}
            for turn in range((3 if wishes.quick else 15) + 1):
                for name, store in stores.items():
                    found = _clock_and_processor(words, place, store, (daemon.pid, starter))
                    taken[name] += [found] if turn else []
            for at, kind in enumerate(("clock", "processor time")):
                own, sent = (statistics.median(one[at] for one in taken[name]) for name in stores)
                lines.append(
                    Line(f"{what}, by the starter: {kind}", sent, "s", "without a daemon", own, None, "cost")
                )
        lines.append(
            Line(
                "  memory of the starter, idle", memories[1], "B", "of its daemon", memories[0], None, "cost"
            )
        )
        return lines
    finally:
        daemon.kill()
        daemon.wait()


def _commands(place: Path) -> dict[str, list[str]]:
    line = f"true && eval 'echo $$ > made' < /dev/null && pwd -P >| {place}/claude-1-cwd"
    run = [sys.executable, "-m", "takeback", "run", "-q", "--"]
    return {
        "takeback run -- true": [*run, "true"],
        "takeback run of a command that writes a file": [*run, "sh", "-c", "echo $$ > made"],
        "a command of mode sandbox that writes a file": [sys.executable, "-I", "-S", prefix_path(), line],
    }


def _clock_and_processor(
    words: list[str], place: Path, store: Path, others: tuple[int, int]
) -> tuple[float, float]:
    environment = {**os.environ, "TAKEBACK_STORE": str(store), "SHELL": "/bin/bash"}
    used, start = _all_processors(others), time.perf_counter()
    subprocess.run(
        words, cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, check=True, start_new_session=True,
    )  # fmt: skip
    clock = time.perf_counter() - start
    return clock, _all_processors(others) - used


def _all_processors(others: tuple[int, int]) -> float:
    """Of our children, of the daemon and its starter, and of the starter's children."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    fields = Path(f"/proc/{others[1]}/stat").read_text().rpartition(")")[2].split()
    waited_for = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return own.ru_utime + own.ru_stime + waited_for + sum(map(processor, others))


def _starter(daemon: "subprocess.Popen[bytes]", place: Path, store: Path) -> int:
    until((store / "hooks/socket").exists)
    words = _commands(place)["takeback run -- true"][:-1]
    says = [*words, "grep", "-q", "agents.starter", "/proc/1/cmdline"]
    environment = {**os.environ, "TAKEBACK_STORE": str(store)}
    until(
        lambda: not subprocess.run(
            says, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            check=False, start_new_session=True,
        ).returncode,
        seconds=60,
    )  # fmt: skip
    threads = Path(f"/proc/{daemon.pid}/task").iterdir()
    found = [pid for thread in threads for pid in (thread / "children").read_text().split()]
    return int(found[0])


def _started_for_nothing() -> float:
    def start() -> None:
        subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)

    return statistics.median(seconds_of(start) for _ in range(15))


def _first_prompt(wishes: Wishes) -> list[Line]:
    directory = Path(wishes.directory, "first")
    with _store(directory):
        project = plant(directory / "project", MANY)
        with talking(directory) as talk:
            started = seconds_of(talk.starts)
            prompted = seconds_of(lambda: talk.prompts("work"))
            edited = seconds_of(lambda: talk.write("new.txt", "x"))
            looked = started + prompted + edited + looked_at(talk)
            talk.kill_daemon()
        with talking(directory, session="s-2") as talk:
            known = seconds_of(talk.starts) + seconds_of(lambda: talk.prompts("work"))
            known += looked_at(talk)
        checked = seconds_of(lambda: git(project, "status", "--porcelain"))
    return [
        Line(f"first start in an unknown project of {MANY:,} files", started, "s", bar=2.0),
        Line("  its first prompt", prompted, "s", bar=2.0),
        Line("  an edit by path right after it", edited, "s", bar=2.0),
        Line("  until the first shell call is let through", looked, "s", "git status", checked, None, "cost"),
        Line("  the same in a known project, new daemon", known, "s", bar=1.0),
    ]


# Ways back.


def _ways_back(wishes: Wishes) -> list[Line]:
    """Of 30 calls that change 200 files together, of one that changes them all, and by git."""
    directory = Path(wishes.directory, "back")
    taken: dict[str, list[float]] = {"prompt": [], "one": [], "git": []}
    with _store(directory):
        project = plant(directory / "project", FEW)
        with talking(directory) as talk:
            looked_at(talk)
            for turn in range((1 if wishes.quick else min(wishes.rounds, 5)) + 1):
                found = {
                    "prompt": _undone(talk, 30, "--prompt"),
                    "one": _undone(talk, 1),
                    "git": _checked_out(talk, project),
                }
                for name, seconds in found.items():
                    taken[name] += [seconds] if turn else []
    middle = {name: statistics.median(values) for name, values in taken.items()}
    return [
        Line(f"undo --prompt of 30 calls, {FEW} files", middle["prompt"], "s", bar=1.0),
        Line("  against one call", middle["prompt"], "s", "undo of one call", middle["one"], 2.0, "cost"),
        Line("  against git", middle["prompt"], "s", "git checkout -- .", middle["git"], None, "cost"),
    ]


def _undone(talk: Talk, calls: int, *how: str) -> float:
    talk.prompts(f"change the files in {calls} calls")
    _change(calls, talk.shell)
    undo = seconds_of(lambda: _run(talk, "undo", *how))
    assert not git(talk.project, "status", "--porcelain"), "not all came back"
    return undo


def _run(talk: Talk, *words: str) -> None:
    done = takeback(*words, home=Path(os.environ["HOME"]), cwd=talk.project)
    assert done.returncode == 0, done.stdout + done.stderr


def _change(calls: int, act: Callable[[str], object]) -> None:
    for call in range(calls):
        names = " ".join(file_of(number) for number in range(call, FEW, calls))
        act(f"for name in {names}; do echo changed >> $name; done")


def _checked_out(talk: Talk, project: Path) -> float:
    """The user does it, so that it is no change of the agent's."""
    _change(1, lambda command: talk.user.does(f"cd {project}; {command}"))
    return seconds_of(lambda: git(project, "checkout", "--quiet", "--", "."))
