"""One driver for each agent, and one more for Codex with its newer models, which call tools from a script."""

from tests.agents.claude_code import ClaudeCode
from tests.agents.codex import Codex, CodexScript
from tests.agents.family import Agent
from tests.agents.gemini import Gemini
from tests.agents.opencode import Opencode

DRIVERS: dict[str, Agent] = {
    one.name: one for one in (ClaudeCode(), Codex(), CodexScript(), Gemini(), Opencode())
}
