"""What comes back of what agents do: the 35 cases with the real agent and our hooks, its own undo beside ours.

Judged by a look of our own at every path, and by what git says; what takeback says is only read for the reason of a
refusal.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.agents import family
from tests.agents.acts import daemons
from tests.agents.drivers import DRIVERS
from tests.agents.family import Deed
from tests.agents.play import NotPlayed, Played, Prompt, Scene, play
from tests.agents.stage import Place, clear, differences
from tests.bench.agents_costs import surroundings
from tests.bench.agents_world import (
    CASES,
    USERS_LINE,
    USERS_PATHS,
    Case,
    World,
    furnished,
    user_meanwhile,
    world_of,
)
from tests.bench.measure import Line, Table, Wishes
from tests.sandbox.scenes import Home, make_home

USER = 65534  # nobody else's
EXACT, REFUSED, SHORT, FALSE, DESTROYED = "exact", "refused", "short", "false success", "user edit destroyed"
IDLE = "the agent did not act"
_AGENTS = ("claude-code", "opencode", "codex", "gemini")
_BOXED = ("claude-code",)  # those that have a sandbox mode
_MODES = ("watch", "sandbox")


class Own(NamedTuple):
    """What the agent's own undo did with the cases; `exact` also where only times were not brought back."""

    version: str
    cells: int
    exact: int
    false: int
    destroyed: int
    more: str


_OWN_WHEN = "2026-11-18"
_OWN = {
    "claude-code": Own("2.1.325", 33, 7, 23, 1, "7 exact but for times in 6; no redo (2)"),
    "opencode": Own("1.18.18", 35, 12, 21, 2, "12 exact but for times in 11"),
    "gemini": Own(
        "0.61.0", 31, 0, 24, 3, "every restore deletes empty directories; no redo (1); did not act (3)"
    ),
    "codex": Own("0.166.0", 0, 0, 0, 0, "it has no undo of files"),
}


class Cell(NamedTuple):
    case: str
    verdict: str
    detail: str = ""
    named: bool = False  # exact, but only when the paths were named


class Told(NamedTuple):
    """What a command said."""

    exit: int
    words: str


def measure(wishes: Wishes) -> Table:
    lines: list[Line] = []
    notes: list[str] = []
    agents = _AGENTS[:1] if wishes.quick else _AGENTS
    root = os.geteuid() == 0
    with suppress(FileNotFoundError):
        Path(wishes.directory).parent.chmod(0o755)
    for user in (None, USER) if root and not wishes.quick else (None,):
        who = "root" if root and user is None else "an ordinary user"
        with _stage(Path(wishes.directory), user) as stage:
            shown = agents[:1] if user and not wishes.full else agents
            for agent, mode in (*((one, "watch") for one in shown), *((one, "sandbox") for one in _BOXED)):
                cells = [stage.cell(agent, case, mode) for case in CASES]
                lines += _lines(agent, f"{who}, {mode} mode", cells)
                notes += _notes(agent, f"{who}, {mode} mode", cells)
    own = [
        f"its own undo: as measured on {_OWN_WHEN}, not run again here; a cell is one of the same cases",
        *(f"  {name} {one.version}: {one.cells} cases, {one.more}" for name, one in _OWN.items()),
    ]
    return Table("Coding agents: what comes back of 35 cases", tuple(lines), (*own, *notes))


def _lines(agent: str, who: str, cells: Sequence[Cell]) -> list[Line]:
    own, acted = _OWN[agent], [one for one in cells if one.verdict != IDLE]
    against = "its own undo" if own.cells else ""

    counts = Counter(one.verdict for one in acted)
    counts[SHORT] = len(acted) - sum(counts[one] for one in (EXACT, REFUSED, FALSE, DESTROYED))

    def line(what: str, verdict: str, reference: int, bar: float | None = None) -> Line:
        count = counts[verdict]
        return Line(what, count, "", against, reference, bar, "cost")

    named = sum(one.named for one in cells)
    more = f" ({named} when the paths are named)" if named else ""
    return [
        line(f"{agent}, {who}: exact{more}, of {len(acted)}", EXACT, own.exact),
        line("  rightly refused: says why, changes nothing", REFUSED, 0),
        line("  short: left something, or refused without need", SHORT, 0, 0),
        line("  false success", FALSE, own.false, 0),
        line("  user edit destroyed", DESTROYED, own.destroyed, 0),
    ]


def _notes(agent: str, who: str, cells: Sequence[Cell]) -> Iterator[str]:
    for one in cells:
        if one.verdict != EXACT:
            yield f"{agent}, {who}, {one.case}: {one.verdict}: {' '.join(one.detail.split())[:300]}"


class Stage:
    """Where cases are played, by root or by an ordinary user."""

    def __init__(self, directory: Path, home: Home | None) -> None:
        self._directory, self._home = directory, home
        self.user = USER if home else None
        self._count = 0

    def cell(self, agent: str, case: Case, mode: str) -> Cell:
        self._count += 1
        directory = self._directory / f"{agent}-{self._count}"
        place = furnished(directory)
        os.environ["TAKEBACK_STORE"] = str(directory / "state/store")
        (directory / "state").mkdir()
        self._give(directory)
        try:
            cell = self._played(agent, case, place, mode)
        except NotPlayed as error:
            cell = Cell(case.name, "not played", str(error)[:300])
        finally:
            clear(place.home)
            for process in daemons(str(directory)):
                os.kill(process, 9)
        if not os.environ.get("BENCH_KEEP"):
            shutil.rmtree(directory)
        return cell

    def _give(self, directory: Path) -> None:
        if self.user is not None:
            for path in (directory, *directory.rglob("*")):
                os.chown(path, self.user, self.user, follow_symlinks=False)

    def _played(self, agent: str, case: Case, place: Place, mode: str) -> Cell:
        for words in (("install", agent), ("mode", mode, agent)):
            done = self._takeback(place, "hook", *words)
            if done.exit and words != ("mode", "watch", agent):
                return Cell(case.name, "not installed", done.words)
        before = world_of(place)
        played = self._play(agent, case, place)
        acted = world_of(place)
        if not _changed(before, acted, case):
            return Cell(case.name, IDLE, " ".join(played.results)[:200])
        if case.after:
            self._as_user(place, case)
        return _Judged(self, place, case, before, acted, played).cell()

    def _play(self, agent: str, case: Case, place: Place) -> Played:
        name = f"case {case.name}"
        turns: tuple[tuple[Deed, ...], ...] = tuple((deed,) for deed in case.deeds)
        meetings = {"call": user_meanwhile} if case.during else {}
        scene = Scene(name, (Prompt(name, turns),), {}, meetings=meetings)
        return play(agent, scene, place.home, place.project, user=self.user)

    def _as_user(self, place: Place, case: Case) -> None:
        if case.after:
            case.after(place.project)

    def takeback(self, place: Place, *words: str) -> Told:
        return self._takeback(place, *words)

    def _takeback(self, place: Place, *words: str) -> Told:
        command = [sys.executable, "-m", "takeback"]
        if self._home:
            code = (
                f"import sys; sys.path[:0] = [{str(self._home.library)!r}]; "
                "from takeback.frontends.cli.main import main; main()"
            )
            command = [self._home.python, "-I", "-B", "-c", code]
        rights = {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": ()}
        done = subprocess.run(
            [*command, *words], cwd=place.project, env={**os.environ, "HOME": str(place.home)}, text=True,
            capture_output=True, check=False, timeout=300, stdin=subprocess.DEVNULL, **rights,
        )  # fmt: skip
        return Told(done.returncode, f"{done.stdout}{done.stderr}".strip())


class _Judged:
    """One case after the agent has acted: goes back, and compares."""

    def __init__(
        self, stage: Stage, place: Place, case: Case, before: World, acted: World, played: Played
    ) -> None:
        self._stage, self._place, self._case = stage, place, case
        self._before, self._acted, self._played = before, acted, played
        self._users = [case.after, case.between, user_meanwhile if case.during else None]

    def cell(self) -> Cell:
        name = self._case.name
        standing = world_of(self._place)
        told = self._undone()
        after = world_of(self._place)
        named = False
        wanted = self._wanted(standing)
        if told.exit and self._left(wanted, after) and _asks_for_names(told):
            if self._case.during:
                return Cell(name, REFUSED, told.words)
            again = self._undone("--", str(self._place.project))
            told, named = Told(again.exit, f"{told.words}\n{again.words}"), True
            after = world_of(self._place)
        if self._case.way == "redo" and not told.exit:
            wanted = self._redo_wanted(after)
            redone = self._stage.takeback(self._place, "redo")
            told, after = Told(redone.exit, f"{told.words}\n{redone.words}"), world_of(self._place)
        left = self._left(wanted, after)
        return self._verdict(told, named, standing, after, left)

    def _verdict(
        self, told: Told, named: bool, standing: World, after: World, left: Mapping[str, str]
    ) -> Cell:
        name, listed = self._case.name, "; ".join(f"{path}: {how}" for path, how in list(left.items())[:6])
        if self._is_users_gone():
            return Cell(name, DESTROYED, f"{listed} · {told.words}")
        if not left:
            return Cell(name, EXACT, "", named) if not told.exit else Cell(name, SHORT, told.words)
        if told.exit and not self._left(standing, after):
            rightly = self._case.name == "user-same-after" or (self._case.outside and self._is_said(told))
            return Cell(name, REFUSED if rightly else SHORT, f"{told.words} · {listed}{self._merged()}")
        said = told.exit or all(path in told.words for path in left)
        return Cell(name, SHORT if said else FALSE, f"{listed} · {told.words}")

    def _undone(self, *paths: str) -> Told:
        if self._case.way == "earlier":
            return self._stage.takeback(self._place, "undo", self._first_call(), *paths)
        return self._stage.takeback(self._place, "undo", "--prompt", *paths)

    def _first_call(self) -> str:
        told = self._stage.takeback(self._place, "log", "--json")
        effects = [one for one in json.loads(told.words) if "app.py" in json.dumps(one)]
        return effects[-1]["id"]

    def _wanted(self, standing: World) -> World:
        """As before the agent; what the user did since is as it stands."""
        if self._case.way == "earlier":
            earlier = {path: self._before.paths[path] for path in ("src", "src/app.py")}
            return World({**standing.paths, **earlier}, {})
        paths = dict(self._before.paths)
        if not any(self._users):
            return World(paths, self._before.git)
        for path in USERS_PATHS if self._case.name != "user-same-after" else ():
            if path in standing.paths:
                paths[path] = standing.paths[path]
        return World(paths, {})

    def _redo_wanted(self, undone: World) -> World:
        """As the agent left it, and what the user does now."""
        if not self._case.between:
            return self._acted
        self._case.between(self._place.project)
        now = world_of(self._place)
        users = {path: now.paths[path] for path in USERS_PATHS}
        return World({**self._acted.paths, **users}, {})

    def _left(self, wanted: World, found: World) -> dict[str, str]:
        left = differences(wanted.paths, found.paths)
        if any(self._users):  # a directory in which the user worked has the user's time
            left = {
                path: how for path, how in left.items() if how != "mtime" or path not in (".", "docs", "src")
            }
        if wanted.git:
            names = {name for name in wanted.git if wanted.git[name] != found.git.get(name)}
            left |= {f"git {name}": "differs" for name in sorted(names)}
        return left

    def _is_users_gone(self) -> bool:
        if not any(self._users):
            return False
        paths = ("src/app.py",) if self._case.name == "user-same-after" else USERS_PATHS
        places = [self._place.project / path for path in paths]
        return not all(one.exists() and USERS_LINE in one.read_text() for one in places)

    def _merged(self) -> str:
        """What the way does that a refusal names: both edits are kept apart."""
        if self._case.name != "user-same-after":
            return ""
        self._undone("--merge")
        text = (self._place.project / "src/app.py").read_text()
        both = USERS_LINE in text and "return 1" in text
        how = "takes back only what the agent did" if both else "does not keep both"
        return f" · --merge then {how}"

    def _is_said(self, told: Told) -> bool:
        """The agent was told what is out of reach; the refusal says it where the kernel reports no authors."""
        heard = json.dumps([dict(one.body) for one in self._played.requests])
        named = "other/config.toml is outside" in heard or "are outside of the project" in heard
        return named or (self._stage.user is not None and "only below the project" in told.words)


def _asks_for_names(told: Told) -> bool:
    return " -- " in told.words


def _changed(before: World, after: World, case: Case) -> bool:
    found = {path for path, how in differences(before.paths, after.paths).items() if how != "mtime"}
    if case.during:
        found -= {*USERS_PATHS}
    return bool(found) or before.git != after.git


@contextmanager
def _stage(directory: Path, user: int | None) -> Iterator[Stage]:
    """A place that the user gets to, and agents and a takeback that the user may start."""
    place = directory / ("by-root" if user is None else "by-user")
    place.mkdir()
    home = make_home() if user is not None else None
    agents = family.AGENTS
    try:
        for path in (directory, place):
            path.chmod(0o755)
        with surroundings(place):
            settings = place / "gitconfig"
            settings.write_text(
                "[user]\n\tname = agent\n\temail = agent@localhost\n[safe]\n\tdirectory = *\n"
            )
            os.environ["GIT_CONFIG_GLOBAL"] = str(settings)
            if user is not None:
                os.environ["PATH"] = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
                os.environ.pop("PYTHONPATH")
                if not all(path.stat().st_mode & 0o001 for path in agents.resolve().parents):
                    family.AGENTS = place / "agents"
                    words = ["cp", "--archive", "--link", f"{agents.resolve()}/.", str(family.AGENTS)]
                    subprocess.run(words, check=True)
            yield Stage(place, home)
    finally:
        family.AGENTS = agents
        if home:
            shutil.rmtree(home.directory)


def main(arguments: list[str]) -> None:
    """`python -m tests.bench.agents_cases AGENT root|user watch|sandbox [CASE…]`: some cells, to look at them."""
    import tempfile

    agent, who, mode, *names = arguments
    assert agent in DRIVERS and who in ("root", "user") and mode in _MODES
    directory = Path(tempfile.mkdtemp(prefix="takeback-cases-", dir="/var/tmp"))
    try:
        with _stage(directory, USER if who == "user" else None) as stage:
            for case in CASES:
                if not names or case.name in names:
                    print(json.dumps({"agent": agent, **stage.cell(agent, case, mode)._asdict()}), flush=True)
    finally:
        if not os.environ.get("BENCH_KEEP"):
            shutil.rmtree(directory)


if __name__ == "__main__":
    main(sys.argv[1:])
