"""Last: by now every command that the README tells its reader to type has been run."""

from __future__ import annotations

import pytest

from tests.e2e.checkout import Checkout
from tests.readme_commands import README_COMMANDS

pytestmark = pytest.mark.e2e


def test_every_command_of_the_readme_was_run() -> None:
    """By the tests before this one: the same target, with at least the variables that the README gives it."""
    ran = [(command[0], {word.partition("=")[0] for word in command[1:]}) for command in Checkout.succeeded]

    def was_run(command: str) -> bool:
        _, target, *variables = command.split()
        wanted = {word.partition("=")[0] for word in variables}
        return any(target == done and wanted <= given for done, given in ran)

    assert [command for command in README_COMMANDS if not was_run(command)] == []
