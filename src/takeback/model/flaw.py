"""What `verify` finds: a sentence for a person, and the names that a decision needs."""


class Flaw(str):
    """One thing that is wrong. Decisions use its fields; the text may say it in any words."""

    __slots__ = ("blob", "effect", "run", "unreadable")

    blob: str  # digest of the blob that is damaged or missing
    effect: str  # the effect whose records or rows are wrong
    run: str  # the run whose records or rows are wrong
    unreadable: bool  # a part of the journal cannot be read, so that no one can say what else is damaged

    def __new__(
        cls, text: str, *, blob: str = "", effect: str = "", run: str = "", unreadable: bool = False
    ) -> "Flaw":
        self = super().__new__(cls, text)
        self.blob, self.effect, self.run, self.unreadable = blob, effect, run, unreadable
        return self
