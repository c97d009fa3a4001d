"""The config adapter keeps every law, and takes each key back by itself."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from takeback.adapters.config import formats
from takeback.adapters.config.adapter import ConfigAdapter, edit_change
from takeback.adapters.config.keys import same
from takeback.adapters.file.adapter import FileAdapter
from takeback.errors import Conflict, Drifted, Misuse, Refused, ValidationFailed
from takeback.model.change import Change, OnConflict
from takeback.model.plan import Outcome, Standing
from takeback.model.record import canonical
from takeback.model.remedy import to_json
from takeback.testing.adapter_suite import AdapterSuite, Desk, undo_of
from tests.memory import MemoryBlobs
from tests.world import Picture, World

COMPOSE = """\
# the shop
services:
  web:
    image: nginx:1.25   # pinned
    ports:
      - "80:80"
      # tls
      - "443:443"
  db: {image: 'postgres:16', password: hunter2}
released: 2024-05-01
"""
PACKAGE = '{\n  "name": "shop",\n  "version": "1.50",\n  "ratio": 1.50,\n  "scripts": {"a": "b"}\n}\n'
PROJECT = """\
[project]
name = "shop"  # ours
released = 2024-05-01

[tool.x]
y = 1
"""


class Story(NamedTuple):
    name: str
    file: str
    begin: str
    set: dict[str, object]
    delete: list[str]
    disturb: Callable[[str], str]


STORIES = [
    Story("set a key of YAML", "c.yml", COMPOSE, {"/services/web/image": "nginx:2"}, [],
          lambda text: text.replace("nginx:1.25", "caddy").replace("nginx:2", "caddy")),
    Story("delete a key of YAML", "c.yml", COMPOSE, {}, ["/services/web"],
          lambda text: "services: {web: 1}\n"),
    Story("a list that grows", "c.yml", COMPOSE, {"/services/web/ports/2": "8080:80"}, [],
          lambda text: text.replace('"80:80"', '"81:81"')),
    Story("a secret", "c.yml", COMPOSE, {"/services/db/password": "correct horse"}, [],
          lambda text: text.replace("hunter2", "other").replace("correct horse", "other")),
    Story("a date", "c.yml", COMPOSE, {}, ["/released"], lambda text: text.split("released")[0] + "released: no\n"),
    Story("several keys of JSON", "p.json", PACKAGE, {"/version": "2", "/deep/er": [1.5]}, ["/scripts"],
          lambda text: text.replace('"1.50"', '"3"').replace('"2"', '"3"')),
    Story("delete from TOML", "p.toml", PROJECT, {}, ["/project/name", "/tool"],
          lambda text: '[project]\nname = "other"\n'),
    Story("set in TOML", "p.toml", PROJECT, {"/project/released": "soon"}, [],
          lambda text: text.replace("2024-05-01", "1").replace('"soon"', "1")),
]  # fmt: skip


class ConfigScene:
    def __init__(self, directory: Path, story: Story) -> None:
        self.root = directory / "world"
        self.held = directory / "held"
        self.blobs = MemoryBlobs()
        self.story = story
        self.reset()

    @property
    def file(self) -> Path:
        return self.root / self.story.file

    def adapter(self) -> ConfigAdapter:
        return ConfigAdapter(FileAdapter(self.blobs, held=str(self.held)), self.blobs)

    def change(self) -> Change:
        return edit_change(self.file, self.story.set, self.story.delete, blobs=self.blobs)

    def world(self) -> Picture:
        return World(self.root).picture()

    def reset(self) -> None:
        for directory in (self.root, self.held):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
        self.file.write_text(self.story.begin)
        self.file.chmod(0o640)
        os.utime(self.file, ns=(10**18, 10**18 + 123_456_789))

    def disturb(self) -> None:
        text = self.file.read_text()
        assert self.story.disturb(text) != text
        self.file.write_text(self.story.disturb(text))


@pytest.mark.sampled(8, only=("killed", "let_go_of"))
class TestConfigAdapter(AdapterSuite):
    stride = 60

    @pytest.fixture(params=STORIES, ids=lambda story: story.name)
    def scene(self, request: pytest.FixtureRequest, tmp_path: Path) -> ConfigScene:
        return ConfigScene(tmp_path, request.param)


@pytest.mark.slow
@pytest.mark.timeout(1200)
class TestConfigAdapterAtEveryPoint(TestConfigAdapter):
    stride = 3


# -- key by key


class Bench:
    """A file, and edits of it; each step by a fresh adapter."""

    def __init__(self, directory: Path, name: str, text: str) -> None:
        self.file = directory / name
        self.file.write_text(text)
        self.blobs = MemoryBlobs()

    @property
    def text(self) -> str:
        return self.file.read_text()

    def adapter(self) -> ConfigAdapter:
        return ConfigAdapter(FileAdapter(self.blobs), self.blobs)

    def desk(self) -> Desk:
        return Desk(self.adapter())

    def edit(self, *delete: str, **set: object):
        values = {"/" + name.replace("__", "/"): value for name, value in set.items()}
        return self.desk().do(edit_change(self.file, values, delete, blobs=self.blobs))

    def undo(self, effect, on_conflict=OnConflict.REFUSE):
        return self.desk().undo(effect, on_conflict)

    def outcomes(self, effect, on_conflict=OnConflict.REFUSE):
        assessment = self.adapter().assess(undo_of(effect, on_conflict), effect)
        return {one.resource.partition("#")[2]: (one.outcome, one.detail) for one in assessment.outcomes}

    def standing(self, effect):
        return self.adapter().verify(effect).standing


@pytest.fixture
def compose(tmp_path):
    return Bench(tmp_path, "docker-compose.yml", COMPOSE)


@pytest.fixture
def package(tmp_path):
    return Bench(tmp_path, "package.json", PACKAGE)


@pytest.fixture(params=["newest first", "oldest first"])
def in_order(request):
    return reversed if request.param == "newest first" else list


def test_effects_on_different_keys_are_undone_in_any_order(compose, in_order):
    first = compose.edit(services__web__image="nginx:2")
    second = compose.edit("/released")
    third = compose.edit(services__db__image="postgres:17", services__cache__image="redis")

    for effect in in_order([first, second, third]):
        compose.undo(effect)

    assert compose.text == COMPOSE


def test_one_effect_is_undone_while_the_others_stay(compose):
    first = compose.edit(services__web__image="nginx:2")
    compose.edit(services__db__image="postgres:17")

    compose.undo(first)

    assert compose.text == COMPOSE.replace("postgres:16", "postgres:17")
    assert compose.standing(first) is Standing.BEFORE


def test_a_foreign_edit_elsewhere_is_no_conflict_and_stays(compose):
    effect = compose.edit("/services/db", services__web__image="nginx:2")
    compose.file.write_text("# edited by hand\n" + compose.text.replace("443", "8443"))

    assert compose.standing(effect) is Standing.AFTER
    compose.undo(effect)

    assert compose.text.startswith("# edited by hand\n# the shop\n")
    assert (
        '"8443:8443"' in compose.text
        and "nginx:1.25   # pinned" in compose.text
        and "postgres:16" in compose.text
    )


def test_a_foreign_edit_of_the_key_is_a_conflict_named_by_key(compose):
    effect = compose.edit(services__web__image="nginx:2", released="never")
    compose.file.write_text(compose.text.replace("nginx:2", "caddy"))
    before = compose.text

    assert compose.outcomes(effect) == {
        "/services/web/image": (Outcome.CONFLICT, f'effect {effect.id[:8]} left "nginx:2", found "caddy"'),
        "/released": (Outcome.UNDONE, "back to 2024-05-01"),
    }
    with pytest.raises(Conflict, match=r"services/web/image") as caught:
        compose.undo(effect)

    assert compose.text == before
    assert [resource.partition("#")[2] for resource in caught.value.resources] == ["/services/web/image"]


def test_merge_is_as_careful_as_refuse(compose):
    effect = compose.edit(services__web__image="nginx:2")
    compose.file.write_text(compose.text.replace("nginx:2", "caddy"))

    with pytest.raises(Conflict):
        compose.undo(effect, OnConflict.MERGE)


def test_skip_takes_back_the_other_keys(compose):
    effect = compose.edit(services__web__image="nginx:2", released="never")
    compose.file.write_text(compose.text.replace("nginx:2", "caddy"))

    compose.undo(effect, OnConflict.SKIP)

    assert compose.text == COMPOSE.replace("nginx:1.25", "caddy")


def test_force_overwrites_and_redo_brings_the_foreign_value_back(compose):
    effect = compose.edit(services__web__image="nginx:2")
    compose.file.write_text(compose.text.replace("nginx:2", "caddy  # mine"))
    foreign = compose.text

    forced = compose.undo(effect, OnConflict.FORCE)
    assert "nginx:1.25" in compose.text and "caddy" not in compose.text
    compose.undo(forced)

    assert compose.text == foreign


@pytest.mark.parametrize("broken", ["services: [", None], ids=["no YAML", "no file"])
def test_a_broken_or_missing_file_is_a_conflict_that_force_repairs(compose, broken):
    effect = compose.edit(services__web__image="nginx:2")
    compose.file.unlink() if broken is None else compose.file.write_text(broken)

    assert compose.standing(effect) is Standing.FOREIGN
    assert compose.outcomes(effect)["/services/web/image"][0] is Outcome.CONFLICT
    forced = compose.undo(effect, OnConflict.FORCE)
    assert compose.text == COMPOSE
    compose.undo(forced)

    assert compose.file.exists() == (broken is not None) and (broken is None or compose.text == broken)


def test_the_comment_of_a_deleted_key_comes_back_with_it(compose):
    effect = compose.edit("/services/web")
    assert "# pinned" not in compose.text

    compose.undo(effect)

    assert compose.text == COMPOSE


def test_the_comment_comes_back_even_if_another_key_changed_since(compose):
    effect = compose.edit("/services/web")
    compose.edit(services__db__image="postgres:17")

    compose.undo(effect)

    assert compose.text == COMPOSE.replace("postgres:16", "postgres:17")


def test_the_comment_comes_back_even_if_the_mode_changed_since(compose):
    effect = compose.edit("/services/web")
    compose.file.chmod(0o600)

    compose.undo(effect)

    assert compose.text == COMPOSE
    assert compose.file.stat().st_mode & 0o777 == 0o600


def test_a_key_comes_back_to_its_place_with_its_type_and_spelling(package):
    effect = package.edit("/version", "/ratio")
    package.file.write_text(package.text.replace("shop", "store"))

    package.undo(effect)

    assert package.text == PACKAGE.replace("shop", "store")


@pytest.mark.parametrize(
    ("name", "text", "pointer"),
    [
        ("a.yml", "on: [push]\nx: 1\n", "/on"),
        ("a.yml", "x: 1\n8080: 0o755\n", "/8080"),
        ("a.yml", "d: 2001-12-14t21:59:43.10-05:00\nx: 1\n", "/d"),
        ("a.yml", "b: yes\nx: 1\n", "/b"),
        ("a.yml", "b: !vault abc\nx: 1\n", "/b"),
        ("a.yml", "b: &a 1\nc: *a\nx: 1\n", "/c"),
        ("a.toml", "d = 1979-05-27T07:32:00Z\nx = 1\n", "/d"),
        ("a.toml", "x = 1\nd = 07:32:00\n", "/d"),
        ("a.toml", "x = 1\nf = 1e400\n", "/f"),
        ("a.json", '{"x": 1, "f": 1E400}', "/f"),
        ("a.json", '{"f": 12345678901234567890, "x": 1}', "/f"),
        ("a.json", '{"f": "\\ud800", "x": 1}', "/f"),
        ("a.json", '{"x": 1, "f": {"z": 1, "a": {"json": "1"}}}', "/f"),
        ("a.json", '{"x": 1, "f": {"json": "1"}}', "/f"),
        ("a.json", '{"x": 1, "sch\\u00f6n ~/\\"#%": null}', '/schön ~0~1"#%'),
    ],
)
def test_what_json_has_no_word_for_comes_back_exactly_by_key(tmp_path, name, text, pointer):
    bench = Bench(tmp_path, name, text)
    effect = bench.edit(pointer)
    # Someone edits elsewhere, so that the bytes as a whole cannot simply be put back.
    other = bench.edit(x=2)

    bench.undo(effect)
    bench.undo(other)

    assert bench.standing(effect) is Standing.BEFORE
    kind = name.rpartition(".")[2].replace("yml", "yaml")
    assert same(formats.read(kind, bench.text.encode()), formats.read(kind, text.encode()))


def test_parents_that_had_to_be_made_go_with_the_key(package):
    effect = package.edit(a__b__c=1)
    package.file.write_text(package.text.replace("shop", "store"))

    package.undo(effect)

    assert package.text == PACKAGE.replace("shop", "store")


def test_parents_stay_while_someone_else_uses_them(package):
    effect = package.edit(a__b__c=1)
    package.edit(a__other=2)

    package.undo(effect)

    assert package.text == PACKAGE.replace('{"a": "b"}', '{"a": "b"},\n  "a": {\n    "other": 2\n  }')


def test_a_key_whose_parent_became_something_else_is_a_conflict(compose):
    effect = compose.edit("/services/web/image")
    compose.file.write_text("services: none\n")

    outcome, detail = compose.outcomes(effect)["/services/web/image"]

    assert outcome is Outcome.CONFLICT and "/services holds text" in detail


def test_undo_of_an_undone_key_finds_it_already_there(compose):
    effect = compose.edit(services__web__image="nginx:2")
    compose.file.write_text(COMPOSE)

    assessment = compose.adapter().assess(undo_of(effect), effect)

    assert assessment.changes_nothing
    assert [one.outcome for one in assessment.outcomes] == [Outcome.ALREADY]


def test_taking_back_after_a_failure_leaves_foreign_edits_elsewhere(compose):
    adapter = compose.adapter()
    effect = Desk(adapter).intend(edit_change(compose.file, {"/services/web/image": "nginx:2"}))
    adapter.apply(effect)
    compose.file.write_text(compose.text.replace("443", "8443"))

    adapter.undo(effect)
    adapter.tidy(effect)

    assert compose.text == COMPOSE.replace("443", "8443")
    assert os.listdir(compose.file.parent) == [compose.file.name]


def test_a_foreign_edit_elsewhere_between_capture_and_apply_is_drift(compose):
    adapter = compose.adapter()
    effect = Desk(adapter).intend(edit_change(compose.file, {"/services/web/image": "nginx:2"}))
    compose.file.write_text(compose.text.replace("443", "8443"))

    with pytest.raises(Drifted):
        adapter.apply(effect)
    adapter.tidy(effect)

    assert compose.text == COMPOSE.replace("443", "8443")


def test_a_change_between_stage_and_capture_is_drift(compose):
    adapter = compose.adapter()
    effect = Desk(adapter).propose(edit_change(compose.file, {"/services/web/image": "nginx:2"}))
    offer = adapter.assess(effect.change).offers[0]
    adapter.stage(effect, named=False)
    compose.file.write_text(compose.text.replace("443", "8443"))

    with pytest.raises(Drifted):
        adapter.capture(effect, offer)
    adapter.tidy(effect)


def test_what_is_staged_is_the_edited_document(compose):
    adapter = compose.adapter()
    effect = Desk(adapter).propose(edit_change(compose.file, {"/services/web/image": "nginx:2"}))

    (staged,) = adapter.stage(effect, named=True)

    assert (
        staged.content == Path(staged.path).read_bytes() == COMPOSE.replace("nginx:1.25", "nginx:2").encode()
    )
    adapter.tidy(effect)
    assert os.listdir(compose.file.parent) == [compose.file.name]


# -- records


def test_each_key_is_a_resource_of_its_own(compose):
    effect = compose.edit("/released", services__web__image="nginx:2")

    assert {target.resource: (target.before, target.after) for target in effect.targets} == {
        f"file://{compose.file}#/services/web/image": (
            {"type": "value", "present": True, "value": "nginx:1.25"},
            {"type": "value", "present": True, "value": "nginx:2"},
        ),
        f"file://{compose.file}#/released": (
            {"type": "value", "present": True, "value": {"yaml": "2024-05-01"}},
            {"type": "value", "present": False},
        ),
    }


def test_odd_keys_are_quoted_in_resources(package):
    effect = package.desk().do(edit_change(package.file, {"/with space/ü~1x": 1}))

    assert [target.resource.partition("#")[2] for target in effect.targets] == ["/with%20space/%C3%BC~1x"]


def test_what_looks_secret_or_is_long_stays_out_of_the_journal(compose):
    long = "very long " * 100
    effect = compose.desk().do(
        edit_change(
            compose.file,
            {"/services/db/password": "correct horse", "/token": ["battery"], "/note": long},
            blobs=compose.blobs,
        )
    )
    record = (
        canonical(to_json(effect.remedy)) + canonical(effect.change.args) + effect.change.summary.encode()
    )

    assert not any(word in record for word in (b"hunter2", b"correct horse", b"battery", b"very long"))
    compose.file.write_text("# moved on\n" + compose.text)
    undone = compose.undo(effect)
    assert compose.text == "# moved on\n" + COMPOSE
    assert not any(word in canonical(to_json(undone.remedy)) for word in (b"hunter2", b"battery"))


def test_a_number_with_a_fraction_can_stand_in_a_record(package):
    effect = package.edit(ratio=2.25)

    canonical(to_json(effect.remedy)), canonical(effect.change.args)
    assert effect.targets[0].before["value"] == {"json": "1.50"}
    assert effect.targets[0].after["value"] == {"json": "2.25"}


# -- refusals


@pytest.mark.parametrize(
    ("name", "content", "set", "error"),
    [
        ("a.json", b"\x00\xff\xfe", {"/a": 1}, Refused),
        ("a.yml", b"a: [", {"/a": 1}, Refused),
        ("a.yml", b"a: 1\n---\na: 2\n", {"/a": 1}, Refused),
        ("a.toml", b"a = ", {"/a": 1}, Refused),
        ("a.json", b'{"a": 1, "a": 2}', {"/a": 1}, Refused),
        ("a.json", b"", {"/a": 1}, Refused),
        ("a.json", b'{"a": 1}', {"/a/b": 1}, Refused),
        ("a.json", b'{"a": [1]}', {"/a/7": 1}, Refused),
        ("a.json", b'{"a": 1}', {"a": 1}, Misuse),
        ("a.json", b'{"a": 1}', {"": 1}, Misuse),
        ("a.json", b'{"a": 1}', {"/a": float("nan")}, Misuse),
        ("a.json", b'{"a": 1}', {"/a": {1, 2}}, Misuse),
        ("a.json", b'{"a": 1}', {"/a": 1, "/a/b": 2}, Misuse),
        ("a.toml", b"a = 1\n", {"/a": None}, Misuse),
        ("a.conf", b"a = 1\n", {"/a": 2}, Misuse),
        ("a.json", b'{"a": 1}', {}, Misuse),
        ("a.yml", b"a: &x {b: 1}\nc: *x\n", {"/c/b": 2}, Refused),
    ],
)
def test_what_cannot_be_edited_is_said_in_one_sentence_with_a_hint(tmp_path, name, content, set, error):
    file = tmp_path / name
    file.write_bytes(content)
    blobs = MemoryBlobs()
    adapter = ConfigAdapter(FileAdapter(blobs), blobs)

    with pytest.raises(error) as caught:
        adapter.assess(edit_change(file, set))

    assert caught.value.hint and str(caught.value).endswith(".") and "\n" not in str(caught.value)
    assert file.read_bytes() == content and os.listdir(tmp_path) == [name]


def test_a_file_that_is_not_there_is_refused(tmp_path):
    blobs = MemoryBlobs()

    with pytest.raises(Refused, match="does not exist"):
        ConfigAdapter(FileAdapter(blobs), blobs).assess(edit_change(tmp_path / "a.json", {"/a": 1}))


def test_a_directory_or_fifo_is_refused_and_never_opened(tmp_path):
    blobs = MemoryBlobs()
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").mkdir()

    for name in ("a.json", "b.json"):
        with pytest.raises(Refused, match="not a regular file"):
            ConfigAdapter(FileAdapter(blobs), blobs).assess(edit_change(tmp_path / name, {"/a": 1}))


def test_removing_an_anchor_that_is_used_elsewhere_is_refused(tmp_path):
    bench = Bench(tmp_path, "a.yml", "a: &x 1\nb: *x\n")

    with pytest.raises(ValidationFailed, match=r"\*x"):
        bench.edit("/a")

    assert bench.text == "a: &x 1\nb: *x\n"


def test_a_link_is_followed_to_the_file_it_names(tmp_path):
    bench = Bench(tmp_path, "real.json", PACKAGE)
    (tmp_path / "link.json").symlink_to("real.json")

    effect = bench.desk().do(edit_change(tmp_path / "link.json", {"/name": "x"}))

    assert (tmp_path / "link.json").is_symlink() and '"name": "x"' in bench.text
    assert effect.change.resource == f"file://{bench.file}"
