"""Random histories on a database: effects, what others do beside them, undo in any order, redo; after each step the
rows are what the model says. An engine joins in by being an `Engine`."""

from random import Random
from typing import Any, NamedTuple, Protocol

from takeback.errors import Refused, StatementFailed, TakebackError
from tests.sql.rows import Images, State, Verdict, difference, named, rebased, taken_back, told
from tests.sql.statements import Dialect, Maker, Statement, tables

POLICIES = ("refuse", "force", "force", "skip", "skip", "skip")


class Engine(Protocol):
    """One database and how takeback is used on it."""

    dialect: Dialect

    def begin(self) -> None:
        """The tables of `statements.schema(dialect)`, empty and protected, and no effects."""
        ...

    def state(self) -> State:
        """Every row of `statements.tables(dialect)`, read by someone else."""
        ...

    def outside(self, statements: list[Statement]) -> None:
        """One transaction of someone who is not captured; `StatementFailed` if the database said no."""
        ...

    def do(self, statements: list[Statement]) -> Any | None:
        """One transaction as one effect. None: nothing changed. `StatementFailed` if the database said no."""
        ...

    def undo(self, effect: Any, policy: str) -> Any:
        """The effect that took it back; taking that back is redo. `Refused` if it was not."""
        ...


class Op(NamedTuple):
    effect: Any
    images: Images
    undoes: "int | None" = None  # its place in the list


class Counts(NamedTuple):
    """How much was really tried."""

    done: int = 0
    failed: int = 0
    exact: int = 0
    refused: int = 0
    skipped: int = 0
    forced: int = 0
    redone: int = 0

    def __add__(self, other: tuple[int, ...]) -> "Counts":  # pyright: ignore
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class History:
    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.seed = engine, seed
        self.random = Random(seed)
        self.maker = Maker(self.random, engine.dialect)
        self.tables = tables(engine.dialect)
        self.ops: list[Op] = []
        self.in_force: set[int] = set()
        self.counts = Counts()
        self.trace: list[str] = []
        self.alone = True  # nobody else changed anything, and what was taken back was always the newest
        self._now: State = {}

    def run(self, steps: int = 16) -> Counts:
        self.engine.begin()
        self._now = self.engine.state()
        for _ in range(4):
            self.outside()
        self.alone, first = True, self._now
        for _ in range(steps):
            self.step()
        self.take_all_back()
        if self.alone:
            self.must_be(first, "taken back newest first, everything is as it was")
        return self.counts

    def step(self) -> None:
        what = self.random.random()
        if what < 0.5 or not self.ops:
            self.do()
        elif what < 0.6:
            self.outside()
        elif what < 0.9:
            self.undo()
        else:
            self.redo()

    def outside(self) -> None:
        statements = self.maker.effect(self._now)
        self.trace.append(f"outside {statements}")
        try:
            self.engine.outside(statements)
        except StatementFailed as said:
            self.trace.append(f"  failed: {said}")
            self.must_be(self._now, "a transaction that failed changed nothing")
            return
        before, self._now = self._now, self.engine.state()
        self.alone = self.alone and before == self._now

    def do(self) -> None:
        statements = self.maker.effect(self._now)
        self.trace.append(f"do {len(self.ops)}: {statements}")
        try:
            effect = self.engine.do(statements)
        except StatementFailed as said:
            self.trace.append(f"  failed: {said}")
            self.must_be(self._now, "an effect that failed changed nothing")
            self.counts += Counts(failed=1)
            return
        before, self._now = self._now, self.engine.state()
        images = difference(self.tables, before, self._now)
        if effect is None:
            self.must_be(before, "what is no effect changed nothing")
            return
        self._add(Op(effect, images))
        self.counts += Counts(done=1)

    def undo(self) -> None:
        ready = [n for n in sorted(self.in_force) if self.ops[n].undoes is None]
        if not ready:
            return
        blocked = [n for n in ready if taken_back(self.tables, self.ops[n].images, self._now).conflicts]
        n = self.random.choice(blocked if blocked and self.random.random() < 0.5 else ready)
        self.alone = self.alone and n == ready[-1]
        # Without a conflict all policies are one.
        self._take_back(n, self.random.choice(POLICIES) if n in blocked else "refuse")

    def redo(self) -> None:
        """Of an undo that is in force, if it took back something that is still taken back."""
        ready = [
            n
            for n in sorted(self.in_force)
            if (of := self.ops[n].undoes) is not None
            and of not in self.in_force
            and self.ops[of].undoes is None
        ]
        if not ready:
            return
        n = self.random.choice(ready)
        self.alone = self.alone and n == len(self.ops) - 1
        if self._take_back(n, "refuse"):
            self.counts += Counts(redone=1)

    def take_all_back(self) -> None:
        for n in sorted(self.in_force, reverse=True):
            if self.ops[n].undoes is None and not self._take_back(n, "refuse") and self.alone:
                raise AssertionError(
                    self.told(f"effect {n} is the newest, nobody came between, and it was refused")
                )

    def _take_back(self, n: int, policy: str) -> bool:
        op = self.ops[n]
        expected = taken_back(self.tables, op.images, self._now, policy)
        if policy == "skip" and not self._skippable(expected):
            policy, expected = "refuse", taken_back(self.tables, op.images, self._now)
        self.trace.append(
            f"undo {n} ({policy}): {'refused, ' + expected.why if expected.state is None else 'exact'}"
        )
        try:
            effect = self.engine.undo(op.effect, policy)
        except Refused as said:
            self.trace.append(f"  refused: {said}")
            self.must_be(self._now, "a refused undo changed nothing")
            if expected.state is not None:
                raise AssertionError(self.told(f"undo {n} ({policy}) was refused: {said}")) from said
            self.counts += Counts(refused=1)
            return False
        if expected.state is None:
            raise AssertionError(self.told(f"undo {n} ({policy}) should have been refused: {expected.why}"))
        before = self._now
        self.must_be(expected.state, f"undo {n} ({policy}) brought back exactly what it had to")
        self._now = expected.state
        self._settle(n, effect, expected, before, policy)
        return True

    def _skippable(self, expected: Verdict) -> bool:
        """Something is left over and something is done, and it is plain which: what rows that cannot be told apart
        or that others refer to have to do with each other is not said by the rule for single rows."""
        plain = all(named(self.tables, name).key for name, _ in expected.conflicts)
        return plain and bool(expected.conflicts) and expected.state not in (None, self._now)

    def _settle(self, n: int, effect: Any, expected: Verdict, before: State, policy: str) -> None:
        op = self.ops[n]
        partly = policy == "skip" and bool(expected.conflicts)
        if partly:
            self._rebase(n, expected)
        else:
            self.in_force.discard(n)
            if op.undoes is not None:
                self.in_force.add(op.undoes)
        self._add(Op(effect, difference(self.tables, before, self._now), n))
        if partly:
            self.in_force.discard(len(self.ops) - 1)  # what was taken back in part is not redone here
        self.alone = self.alone and not expected.conflicts
        self.counts += Counts(
            exact=1, skipped=int(partly), forced=int(policy == "force" and bool(expected.conflicts))
        )

    def _rebase(self, n: int, expected: Verdict) -> None:
        """For each row that was left, the next effect on it that is in force."""
        for where in expected.conflicts:
            for later in range(n + 1, len(self.ops)):
                pair = self.ops[later].images.keyed.get(where)
                if later in self.in_force and pair and pair.before == self.ops[n].images.keyed[where].after:
                    images = rebased(self.ops[later].images, self.ops[n].images, frozenset({where}))
                    self.ops[later] = self.ops[later]._replace(images=images)
                    break

    def _add(self, op: Op) -> None:
        self.ops.append(op)
        self.in_force.add(len(self.ops) - 1)

    def must_be(self, expected: State, claim: str) -> None:
        found = self.engine.state()
        if found != expected:
            raise AssertionError(self.told(f"not so: {claim}; expected → found:\n{told(expected, found)}"))

    def told(self, what: str) -> str:
        steps = "\n".join(f"  {line}" for line in self.trace)
        return f"{self.engine.dialect.name}, seed {self.seed}: {what}\nsteps:\n{steps}"


def histories(engine: Engine, seeds: range, steps: int = 16) -> Counts:
    """One for each seed; a failure names its own, and `History(engine, seed).run()` repeats it."""
    counts = Counts()
    for seed in seeds:
        history = History(engine, seed)
        try:
            counts += history.run(steps)
        except TakebackError as error:
            raise AssertionError(history.told(f"{type(error).__name__}: {error}")) from error
    return counts
