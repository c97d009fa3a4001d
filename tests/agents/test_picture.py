"""The picture of a coding agent in the guide."""

import pytest

from tests.agents.talk import knows_authors
from tests.docs.pages import DOCS
from tests.docs.picture import AGENT_PICTURE, agent_session, drawn, said


@pytest.mark.agents
@pytest.mark.may_skip("it shows a machine whose kernel reports who changes what")
def test_the_picture_of_a_coding_agent_shows_what_the_commands_print():
    if not knows_authors(DOCS):
        pytest.skip("the kernel does not report who changes what")
    assert said(AGENT_PICTURE.read_text()) == said(drawn(agent_session())), "Run `make docs-generate`."
