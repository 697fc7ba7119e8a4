"""What tests of rules and routes share: the real programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local import toolchain

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """The path of a built program, by its name in `local.toolchain`."""
    return lambda name: str(toolchain.ensure([name], print)[name])
