"""A harness must be shown to catch broken code: each rule is broken once, and a suite must fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


def broken_copy(mutant: Mutant, into: Path) -> Path:
    source = into / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in (*((mutant.file, *one) for one in mutant.replace), *mutant.also):
        file = source / "takeback" / name
        text = file.read_text()
        assert old in text, f"{name} no longer holds what this mutant replaces: {old!r}"
        file.write_text(text.replace(old, new))
    return source


def run_suite(mutant: Mutant, source: Path) -> subprocess.CompletedProcess[str]:
    # Of tables that are run in turns only what runs each time: then every `make test` notices.
    surroundings = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "TAKEBACK_TESTS_TURN": "-1"}
    # A place of its own: pytest would change the mode of the directory that all sessions share.
    place = f"--basetemp={source.parent / 'tests'}"
    arguments = [place, "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "-n", "0", *mutant.suite]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=ROOT,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.rule.replace(" ", "-") for mutant in MUTANTS])
def test_every_mutant_can_still_be_made(mutant: Mutant, tmp_path: Path) -> None:
    source = broken_copy(mutant, tmp_path)
    compile((source / "takeback" / mutant.file).read_text(), mutant.file, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.rule.replace(" ", "-") for mutant in MUTANTS])
def test_a_broken_rule_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    outcome = run_suite(mutant, broken_copy(mutant, tmp_path))

    # 1: tests ran and some failed. Anything else (5: none ran, 2: could not start) would be a mutant nobody tested.
    assert outcome.returncode == 1, f"{mutant.rule!r} can be broken unnoticed:\n{outcome.stdout[-2000:]}"
