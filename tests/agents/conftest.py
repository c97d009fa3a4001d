"""Where a scene is played, and that nothing of it runs on."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.shims import compiled_shim
from tests.agents.stage import Place, clear, set_out


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


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled shim of this tree: whatever lies beside the package may be of another day."""
    return compiled_shim(tmp_path_factory.mktemp("compiled") / "shim")
