"""What hooks were given, as `capture.py` wrote it: read, made neutral, compared by shape.

`payloads/AGENT/SCENE.json` holds all events of a scene in order, from the real agents, for the unit tests of what reads
them. `python -m tests.agents.records [AGENT…] [SCENE…]` plays them all, or these, and writes again.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.agents.family import AGENTS, Hooks
from tests.agents.stage import Place

PAYLOADS = Path(__file__).parent / "payloads"
_CAPTURE = Path(__file__).parent / "capture.py"
_VARIES = re.compile(
    r"(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})|(?P<own>(?:ses|msg|prt|evt|per)_[0-9A-Za-z]{12,})"
    r"|(?P<chat>session-20\d\d-\d\d-\d\dT[\d-]+-[0-9a-f]{8})|(?P<time>20\d\d-\d\d-\d\dT\d\d[:-]\d\d[:-]?\d\d(?:\.\d+)?Z?)"
    r"|(?P<day>sessions/20\d\d/\d\d/\d\d)"
    r"|(?P<sleep>sleep 86400\.\d+)|(?P<group>PGID: \d+)|(?P<chunk>Chunk ID: \w+)"
    r"|(?P<hash>\b[0-9a-f]{40}\b|\b(?!a)[0-9a-f]{16}\b)"
    r"|(?P<member>\ba[0-9a-f]{16}\b)|(?P<task>\bb[0-9a-z]{8}\b(?=\.output|$))"
)
_FIXED = {
    "chat": "session-2026-11-19T00-00-00000000",
    "time": "2026-11-19T00:00:00.000Z", "day": "sessions/2026/11/19", "sleep": "sleep 86400", "group": "PGID: 1000",
    "chunk": "Chunk ID: 000000", "hash": "0" * 16,
}  # fmt: skip


class Record(NamedTuple):
    event: str
    payload: Mapping[str, Any]
    environment: Mapping[str, str]
    cwd: str

    @property
    def tool(self) -> str:
        found = self.payload.get("tool_name") or self.payload.get("input", {}).get("tool")
        return str(found or "")

    @property
    def shape(self) -> tuple[str, ...]:
        """Which event, of which tool, with which keys."""
        return (self.event, self.tool, *sorted(self.payload))


def recorder(place: Place, *, python: str = sys.executable, decides: tuple[str, ...] = ()) -> Hooks:
    """A hook that records, and before a call answers what `decides` says (options of capture.py)."""
    script = place.records.parent / _CAPTURE.name
    script.write_bytes(_CAPTURE.read_bytes())
    script.chmod(0o644)
    return Hooks([python, "-I", "-S", str(script), *decides, str(place.records)])


def recorded(place: Place) -> list[Record]:
    found = (json.loads(path.read_text()) for path in sorted(place.records.glob("[0-9]*.json")))
    return [Record(one["event"], one["payload"], one["environment"], one["cwd"]) for one in found]


def kept(agent: str, scene: str) -> list[Record]:
    """As they lie in `payloads`."""
    return [Record(**one) for one in json.loads(place_of(agent, scene).read_text())]


def place_of(agent: str, scene: str) -> Path:
    return PAYLOADS / agent / f"{scene.replace(' ', '-')}.json"


def neutral(records: list[Record], place: Place) -> list[dict[str, Any]]:
    """Without the paths, ids and times of one machine and one day."""
    places = {str(place.top): "/home/me", str(place.home): "/home/me", str(AGENTS): "/opt/agents"}
    places |= {re.sub(r"[^A-Za-z0-9]", "-", path): re.sub("[^a-z]", "-", new) for path, new in places.items()}
    names: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        kind, text = str(found.lastgroup), found.group()
        if kind == "uuid":
            return names.setdefault(text, f"00000000-0000-4000-8000-{len(names) + 1:012}")
        if kind == "own":
            return names.setdefault(text, f"{text[:3]}_{len(names) + 1:024}")
        if kind in ("member", "task"):
            return names.setdefault(text, f"{text[0]}{len(names) + 1:0{len(text) - 1}}")
        return _FIXED[kind]

    def plain(value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            return {name: plain(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [plain(inner, key) for inner in value]
        if isinstance(value, str):
            for path, new in places.items():
                value = value.replace(path, new)
            return "1000" if key == "CLAUDE_PID" else _VARIES.sub(other, value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return 1000 if key == "pid" else 0 if value > 10**12 or key.startswith("duration") else value
        return value

    return [plain(one._asdict()) for one in records]


def main(names: list[str]) -> None:
    from tests.agents.drivers import DRIVERS
    from tests.agents.play import play
    from tests.agents.scenes import SCENES
    from tests.agents.stage import clear, set_out

    agents = [name for name in names if name in DRIVERS] or DRIVERS
    scenes = [scene for scene in SCENES if scene.name.replace(" ", "-") in names] or SCENES
    for agent, scene in (
        (agent, scene) for agent in agents for scene in scenes if agent not in scene.without
    ):
        with tempfile.TemporaryDirectory(prefix="takeback-records-") as directory:
            place = set_out(Path(directory))
            try:
                play(agent, scene, place.home, place.project, recorder(place))
            finally:
                clear(place.home)
            path = place_of(agent, scene.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(neutral(recorded(place), place), indent=1, ensure_ascii=False) + "\n")


def all_kept() -> Iterator[tuple[str, str, list[Record]]]:
    for path in sorted(PAYLOADS.glob("*/*.json")):
        yield path.parent.name, path.stem, [Record(**one) for one in json.loads(path.read_text())]


if __name__ == "__main__":
    main(sys.argv[1:])
