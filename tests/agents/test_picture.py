"""The picture of a coding agent in the guide."""

import pytest

from tests.agents.talk import knows_authors
from tests.docs.pages import DOCS
from tests.docs.picture import AGENT_COMMANDS, AGENT_PICTURE, agent_session, drawn, said

UNDO = "takeback undo --prompt"


@pytest.mark.agents
@pytest.mark.each_share
def test_the_picture_of_a_coding_agent_shows_what_the_commands_print():
    picture = said(AGENT_PICTURE.read_text())
    if knows_authors(DOCS):
        assert said(drawn(agent_session())) == picture, "Run `make docs-generate`."
        return
    # Where the kernel does not report who changes what, the paths are named; the rest is as in the picture.
    at = AGENT_COMMANDS.index(UNDO)
    named = (*AGENT_COMMANDS[: at + 1], f"{UNDO} -- .", *AGENT_COMMANDS[at + 1 :])
    shown = said(drawn(agent_session(named)))
    assert from_command(shown, f"{UNDO} -- .") == from_command(picture, UNDO)
    assert any("may have been changed by someone else" in line for line in from_command(shown, UNDO))


def from_command(lines: list[str], command: str) -> list[str]:
    return lines[lines.index(f"$ {command}") + 1 :]
