"""What is wrong with a configuration, said so that a person can put it right."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PLAIN = re.compile(r"[A-Za-z_][-A-Za-z0-9_]*")

GOT_MAX_CHARS = 120
"""How much of a value an error shows: enough to find it in the stack file, too little to flood a terminal."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault of the configuration.

    `setting` is the path of the setting below the namespace `triton-fleet` (`skus[0].nodes.min`), `got` its value,
    `limit` what would have been accepted, `why` the reason for that limit, `fix` what to do.
    """

    setting: str
    got: str
    limit: str
    why: str
    fix: str

    def __str__(self) -> str:
        return (
            f"{self.setting}\n   got:   {self.got}\n   limit: {self.limit}\n   why:   {self.why}\n   fix:   {self.fix}"
        )


class Refused(Exception):  # noqa: N818 - the program's verdict, not a malfunction
    """The configuration cannot work; `faults` holds everything that is wrong with it, not only the first."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults: list[Fault] = list(faults)
        super().__init__(str(self))

    def __str__(self) -> str:
        count = len(self.faults)
        return f"the configuration has {count} fault{'' if count == 1 else 's'}:\n{table(self.faults)}"


def table(faults: Iterable[Fault]) -> str:
    """Faults as a numbered list, in the order given."""
    return "\n".join(f"{number}. {fault}" for number, fault in enumerate(faults, start=1))


def shown(value: object) -> str:
    """A value as an error shows it: its literal on one line, cut to `GOT_MAX_CHARS`.

    Text of several lines is a file pasted in by mistake, a kubeconfig with its token perhaps: its content is not shown.
    """
    if isinstance(value, str) and "\n" in value:
        return f"text of {len(value.splitlines())} lines"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= GOT_MAX_CHARS else f"{text[: GOT_MAX_CHARS - 1]}…"


def path_text(loc: Sequence[object]) -> str:
    """`("skus", 0, "nodes", "min")` as `skus[0].nodes.min`; names that hold a dot or the like stand in brackets."""
    text = ""
    for part in loc:
        if isinstance(part, str) and _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text
