"""Where a scene is played, and that nothing of it runs on."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.acts import daemons
from tests.agents.shims import compiled_shim
from tests.agents.stage import Place, clear, set_out
from tests.agents.talk import Talk, talking
from tests.e2e.conftest import CommandLine
from tests.world import World


@pytest.fixture
def home() -> Path:
    return Path(os.environ["HOME"])


@pytest.fixture
def takeback(world: World) -> CommandLine:
    return CommandLine(os.fspath(world.root))


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    with talking(tmp_path) as talk:
        (talk.project / "one").write_text("1\n")
        (talk.project / "two").write_text("2\n")
        yield talk


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = set_out(tmp_path)
    yield made
    clear(made.home)


@pytest.fixture
def open_place() -> Iterator[Place]:
    """Where an ordinary user gets to: pytest closes its own directories whenever another session begins."""
    with tempfile.TemporaryDirectory(prefix="takeback-user-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        made = set_out(Path(directory))
        yield made
        clear(made.home)


@pytest.fixture
def no_daemon_stays() -> Iterator[None]:
    yield
    for process in daemons(os.environ["TAKEBACK_STORE"]):
        os.kill(process, 9)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled shim of this tree: whatever lies beside the package may be of another day."""
    return compiled_shim(tmp_path_factory.mktemp("compiled") / "shim")
