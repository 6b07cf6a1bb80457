"""The table of planted bugs fits the code: `make mutants` would plant each of them, and ask tests that exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from benchmarks.mutants.mutant import PACKAGE, ROOT, Mutant
from benchmarks.mutants.table import FAMILIES

MUTANTS = [mutant for mutants in FAMILIES.values() for mutant in mutants]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_the_bug_can_be_planted_in_one_place(mutant: Mutant) -> None:
    source = (ROOT / PACKAGE / mutant.file).read_text()
    planted = mutant.planted(source)
    assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("test", sorted({test for mutant in MUTANTS for test in mutant.tests}))
def test_the_test_that_must_notice_exists(test: str) -> None:
    file, _, function = test.partition("::")
    names = [node.name for node in ast.parse(Path(ROOT / "tests" / file).read_text()).body if hasattr(node, "name")]
    assert not function or function.partition("[")[0] in names


def test_every_bug_is_described_once() -> None:
    assert len({mutant.bug for mutant in MUTANTS}) == len(MUTANTS)
