"""A squashed layer shows what its layers show: asked of the kernel, over random stacks."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from takeback.sandbox.layer_owner import squash

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 240


def stacks(place: Path, seed: int, count: int) -> list[dict[str, Any]]:
    """In a mount namespace of its own: whatever happens, nothing stays mounted."""
    command = [sys.executable, "-m", "tests.boxes.stacks", str(place), str(seed), str(count)]
    ended = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", *command],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=LIMIT, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def judge(told: list[dict[str, Any]], count: int) -> Counter[str]:
    assert len(told) == count
    assert [one for one in told if one["different"]] == []
    return Counter({name: sum(one[name] for one in told) for name in ("whiteouts", "opaque", "redirects")})


@pytest.mark.root
def test_random_stacks_show_the_same_when_squashed(tmp_path: Path) -> None:
    met = judge(stacks(tmp_path, 1, 12), 12)
    assert met["whiteouts"] and met["opaque"]


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1000, 2000])
def test_many_random_stacks_show_the_same_when_squashed(tmp_path: Path, seed: int) -> None:
    met = judge(stacks(tmp_path, seed, 100), 100)
    assert met["whiteouts"] > 50 and met["opaque"] > 50 and met["redirects"] > 15


def layer(place: Path, name: str, files: dict[str, str]) -> Path:
    made = place / name
    (made / "0").mkdir(parents=True)
    told = {"mounts": [{"point": "/", "upper": "0"}], "userxattr": True, "redirect": True}
    (made / "layer.json").write_text(json.dumps(told))
    for path, text in files.items():
        (made / "0" / path).parent.mkdir(parents=True, exist_ok=True)
        (made / "0" / path).write_text(text)
    return made


def test_nothing_is_copied_and_the_layers_stay_as_they_are(tmp_path: Path) -> None:
    older = layer(tmp_path, "older", {"a": "old", "dir/b": "b"})
    newer = layer(tmp_path, "newer", {"a": "new", "dir/c": "c"})

    squash([str(newer), str(older)], str(tmp_path / "both"))

    both = tmp_path / "both" / "0"
    assert (both / "a").read_text() == "new"
    assert os.path.samefile(both / "a", newer / "0" / "a")
    assert os.path.samefile(both / "dir" / "b", older / "0" / "dir" / "b")
    assert (older / "0" / "a").read_text() == "old"


def test_layers_with_several_filesystems_are_squashed_each_by_itself(tmp_path: Path) -> None:
    older = layer(tmp_path, "older", {"a": "old"})
    newer = layer(tmp_path, "newer", {"b": "new"})
    (newer / "1").mkdir()
    (newer / "1" / "c").write_text("on another disk")
    mounts = [{"point": "/", "upper": "0"}, {"point": "/srv", "upper": "1"}]
    (newer / "layer.json").write_text(json.dumps({"mounts": mounts, "userxattr": True, "redirect": True}))

    squash([str(newer), str(older)], str(tmp_path / "both"))

    told = json.loads((tmp_path / "both" / "layer.json").read_text())
    upper = {mount["point"]: tmp_path / "both" / mount["upper"] for mount in told["mounts"]}
    assert sorted(os.listdir(upper["/"])) == ["a", "b"]
    assert os.listdir(upper["/srv"]) == ["c"]


def test_what_is_gone_is_not_remembered_where_nothing_can_lie_below(tmp_path: Path) -> None:
    older = layer(tmp_path, "older", {"new/a": "a"})
    os.setxattr(older / "0" / "new", "user.overlay.opaque", b"y")
    newer = layer(tmp_path, "newer", {"new/b": "b"})
    os.mknod(newer / "0" / "new" / "a", 0o020000, 0)

    squash([str(newer), str(older)], str(tmp_path / "both"))

    assert os.listdir(tmp_path / "both" / "0" / "new") == ["b"]
    assert os.getxattr(tmp_path / "both" / "0" / "new", "user.overlay.opaque") == b"y"
