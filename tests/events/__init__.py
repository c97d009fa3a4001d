import os

from takeback.model.effect import Effect
from takeback.runs.run import Run


def wrote(run: Run, path: "str | os.PathLike[str]", text: str) -> Effect:
    """The effect of a write that changed something."""
    effect = run.write(path, text)
    assert effect
    return effect
