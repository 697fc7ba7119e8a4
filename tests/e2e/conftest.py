"""The embedded cluster for the end-to-end tests: one per run, in a copy of the project."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.e2e import machine
from tests.e2e.checkout import FOLDER, Checkout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def fresh_copy(folder: Path) -> Checkout:
    if folder.exists():
        Checkout(folder).make("down")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return Checkout.make_copy(folder)


@pytest.fixture(scope="session")
def before() -> dict[str, list[str]]:
    """The machine before anything was started."""
    return machine.snapshot()


@pytest.fixture(scope="session")
def checkout(before: dict[str, list[str]]) -> Iterator[Checkout]:
    """A copy of the project on which `make up` has succeeded; `make down` ends it, whatever happens."""
    assert before
    copy = fresh_copy(FOLDER / "first")
    try:
        up = copy.make("up")
        assert up.status == 0, up.text[-6000:]
        (copy.folder / "first-up.txt").write_text(up.text)
        shutil.copy(copy.folder / "reports" / "verification.json", copy.folder / "first-verification.json")
        yield copy
    finally:
        copy.make("down")
