"""What every `Journal` knows of projects: which effects and runs belong to them, and which markers were made."""

from takeback.model.effect import State
from takeback.model.project import Project, Scope
from takeback.model.record import Kind
from takeback.model.run import OnDeath
from takeback.storage.protocols import Query
from takeback.testing.fakes import ending, intending
from takeback.testing.journal_suite import Books
from takeback.testing.journal_workflows_suite import JournalWorkflowsSuite

P, Q, INNER = "file:///p", "file:///q", "file:///p/inner"
HERE, THERE = Scope((P,)), Scope((Q,))


class JournalProjectsSuite(JournalWorkflowsSuite):
    def test_an_effect_belongs_to_the_project_that_its_run_began_in(self, books: Books) -> None:
        here, there = books.open("here", project=P, marked=True), books.open("there", project=Q)
        books.make(here, "e", "call://pay")
        books.make(there, "f", "file:///q/x")
        books.make(here, "g", "file:///p/y")
        assert books.ids(scope=HERE) == ["e", "g"]
        assert books.ids(scope=HERE, newest=True, limit=1) == ["g"]
        assert books.ids(scope=THERE) == ["f"]
        assert books.ids(scope=Scope((P, Q))) == ["e", "f", "g"]
        assert books.ids(scope=Scope(())) == []
        assert books.journal.count(Query(scope=HERE)) == 2
        assert [info.project for info in books.journal.runs()] == [P, Q]

    def test_an_effect_belongs_to_every_project_that_it_touches(self, books: Books) -> None:
        lease = books.open("run", project=P, marked=True)
        books.make(lease, "e", "file:///p/x", roots=[P, Q])
        books.make(lease, "f", "file:///p/x")
        assert books.ids(scope=THERE) == ["e"]
        assert books.ids(scope=HERE) == ["e", "f"]
        assert books.effect("e").roots == (P, Q)

    def test_one_of_no_project_belongs_where_it_touched_something(self, books: Books) -> None:
        lease = books.open("run")
        books.make(lease, "e", "file:///p/x", roots=[P])
        books.make(lease, "f", "call://pay")
        assert books.ids(scope=HERE) == ["e"]
        assert books.ids() == ["e", "f"]

    def test_a_directory_without_a_marker_has_those_inside_too_but_not_inner_projects(
        self, books: Books
    ) -> None:
        lease = books.open("run", project="file:///tmp/w")
        books.make(lease, "own", "file:///tmp/w/x")
        books.make(lease, "deep", "file:///tmp/w/d/x", places=["file:///tmp/w/d"])
        inner = books.open("inner", project="file:///tmp/w/git", marked=True)
        books.make(inner, "marked", "file:///tmp/w/git/x")
        beside = books.open("beside", project="file:///tmp/w-2")
        books.make(beside, "beside", "file:///tmp/w-2/x")
        assert books.ids(scope=Scope(("file:///tmp/w",), "file:///tmp/w")) == ["own", "deep"]
        assert books.ids(scope=Scope(("file:///tmp",), "file:///tmp")) == ["own", "deep", "beside"]
        assert books.ids(scope=Scope(("file:///tmp/w/d",), "file:///tmp/w/d")) == ["deep"]

    def test_runs_of_a_project_began_there_or_touched_it(self, books: Books) -> None:
        books.open("here", project=P, marked=True)
        there = books.open("there", project=Q, marked=True)
        books.make(there, "e", "file:///p/x", roots=[P])
        books.open("nowhere")
        assert [info.id for info in books.journal.runs(scope=HERE)] == ["here", "there"]
        assert [info.id for info in books.journal.runs(scope=THERE)] == ["there"]
        assert [info.id for info in books.journal.runs(("there",), scope=HERE)] == ["there"]

    def test_what_is_known_of_a_project_only_becomes_true(self, books: Books) -> None:
        assert not list(books.journal.projects((P, Q)))
        lease = books.open("run", project=P)
        assert list(books.journal.projects((P, Q))) == [Project(P, began=True)]
        books.make(lease, "e", "file:///p/x", roots=[P, Q])
        books.make(lease, "f", "file:///p/y", places=[Q])
        known = {one.root: one for one in books.journal.projects((P, Q))}
        assert known == {P: Project(P, marked=True, began=True), Q: Project(Q, marked=True)}
        assert not list(books.journal.projects(()))

    def test_a_marker_that_an_effect_made_is_known(self, books: Books) -> None:
        lease = books.open("run", project=P, marked=True)
        made = {"type": "absent"}
        books.make(lease, "e", ["file:///p/inner/.git", "file:///p/inner/.git/HEAD"], before=made)
        books.make(lease, "f", "file:///p/other/.git", before={"type": "dir"})
        assert list(books.journal.projects((INNER, "file:///p/other"))) == [Project(INNER, made=True)]
        assert books.ids(scope=Scope((INNER,))) == []

    def test_an_undo_that_brings_a_marker_back_made_none(self, books: Books) -> None:
        lease = books.open("run", project=P, marked=True)
        books.make(lease, "e", "file:///p/.git", before={"type": "dir"})
        books.make(lease, "u", "file:///p/.git", undoes="e", before={"type": "absent"})
        assert list(books.journal.projects((P,))) == [Project(P, marked=True, began=True)]

    def test_what_took_hold_late_is_found_in_its_project(self, books: Books) -> None:
        lease = books.open("run", project=P, marked=True)
        books.journal.append(lease, [intending("held", "run", "file:///p/h", kind=Kind.PROPOSE)])
        books.make(lease, "e", "file:///p/x")
        between = books.effect("e").seq
        late = intending("held", "run", "file:///p/h", roots=[P, Q])
        books.journal.append(lease, [late, ending("held", "run")])
        assert books.ids(scope=HERE) == ["held", "e"]
        assert books.ids(scope=HERE, told_after=between) == ["held"]
        assert books.ids(scope=HERE, told_after=between, before=between) == ["held"]
        assert books.ids(scope=THERE, told_after=between, before=between) == ["held"]
        assert books.ids(scope=HERE, told_after=books.effect("held").told) == []

    def test_a_scope_narrows_with_everything_else(self, books: Books) -> None:
        lease = books.open("run", project=P, marked=True, agent="ann", on_death=OnDeath.LEAVE)
        other = books.open("other", project=P, marked=True, agent="bob")
        books.make(lease, "e", "file:///p/x")
        books.make(other, "f", "file:///p/y")
        books.journal.append(other, [intending("g", "other", "file:///p/z")])
        assert books.ids(scope=HERE, agent="ann") == ["e"]
        assert books.ids(scope=HERE, states=(State.INTENDED,)) == ["g"]
        assert books.ids(scope=HERE, run="other") == ["f", "g"]
        assert books.ids(scope=HERE, resource="file:///p/y") == ["f"]
        assert books.ids(scope=THERE, resource="file:///p/y") == []

    def test_many_effects_are_listed_with_their_projects(self, books: Books) -> None:
        here, there = books.open("here", project=P, marked=True), books.open("there", project=Q)
        for number in range(100):
            books.make(here, f"e{number}", f"file:///p/{number}")
            if number % 10 == 0:
                books.make(there, f"f{number}", f"file:///p/{number}", roots=[P])
        assert len(books.ids(scope=HERE)) == 110
        assert len(books.ids(scope=THERE)) == 10
        assert not list(books.journal.check())
