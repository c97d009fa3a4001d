"""One agent and one user in one repository."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from tests.git.agent import Agent
from tests.git.repository import Repository, fresh, variables


@pytest.fixture(params=["sha1", "sha256"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    return fresh(tmp_path / "work/main", f"--object-format={request.param}")


@pytest.fixture
def run(store: Path) -> Iterator[takeback.Run]:
    with takeback.open(str(store)) as tb, tb.run("agent") as run:
        yield run


@pytest.fixture(params=["sandbox", "watch", "box"])
def agent(request: pytest.FixtureRequest, run: takeback.Run, repository: Repository) -> Agent:
    """Does one line in the repository, as one effect."""
    cwd = str(repository.root)

    def act(line: str) -> takeback.Effect:
        argv = ["/bin/sh", "-ec", line]
        if request.param == "sandbox":
            outcome = run.command(argv, cwd=cwd, env=variables())
            assert outcome.exit_code == 0, outcome.stderr
            effect = outcome.effect
        elif request.param == "box":
            with run.sandbox(cwd=cwd, env=variables()) as box:
                assert box.run(argv).exit_code == 0
                effect = box.commit().effect
        else:
            with run.watch(str(repository.root.parent), any_root=True) as watch:
                repository.sh(line)
            effect = watch.effect
        assert effect is not None
        return effect

    return act
