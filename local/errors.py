"""The one error that the local commands raise for what the person at the keyboard can act on."""

from __future__ import annotations


class LocalError(Exception):
    """Something the user has to know: what failed, and the next command to try.

    The command line prints the text and exits with status 1; anything else that is raised is a bug and
    keeps its traceback.
    """

    def __init__(self, what: str, *, fix: str, details: str = "") -> None:
        self.what = what
        self.fix = fix
        self.details = details
        super().__init__("\n".join(part for part in (what, details, f"fix: {fix}") if part))
