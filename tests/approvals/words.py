"""People who decide, in tests: they type the words that they are shown."""

import takeback
from takeback.engine.approvable import challenge


def words(tb: takeback.Takeback, effect: "takeback.Effect | str | None") -> str:
    return challenge(tb.effect(effect if isinstance(effect, str) else effect.id if effect else ""))
