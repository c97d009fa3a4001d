"""One driver for each agent, and one more for Codex with its newer models, which call tools from a script.

Cursor is a stand-in, which does what its contract says: nothing can be learned from it about Cursor.
"""

from tests.agents.claude_code import ClaudeCode
from tests.agents.codex import Codex, CodexScript
from tests.agents.cursor import Cursor
from tests.agents.family import Agent
from tests.agents.gemini import Gemini
from tests.agents.opencode import Opencode

DRIVERS: dict[str, Agent] = {
    one.name: one for one in (ClaudeCode(), Codex(), CodexScript(), Gemini(), Opencode())
}
PLAYED = {**DRIVERS, Cursor.name: Cursor()}
