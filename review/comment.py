"""The comment on a pull request: one for all stacks, found again by its first line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from review.facts import UNKNOWN, Cost
from review.plan import Kind, Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from review.facts import Facts
    from review.gate import Finding
    from review.plan import Change, Plan

MARKER: Final = "<!-- triton-fleet-review -->"
"""The first line of the comment, which no reader sees."""
BODY_MAX_CHARS: Final = 65_536
"""What GitHub accepts: it answers a longer one with "body is too long (maximum is 65536 characters)"."""
ROWS: Final = (60, 30, 15, 5, 1, 0)
"""How many rows a table may have; the first number with which the comment fits is taken."""
CELL_MAX_CHARS: Final = 300
CHANGED_KINDS: Final = (Kind.CREATE, Kind.IMPORT, Kind.UPDATE, Kind.REPLACE, Kind.DELETE)


@dataclass(frozen=True, slots=True)
class Review:
    """All that is known of one stack. `plan` is None, and `missing` says why, where there is none to judge."""

    stack: str
    plan: Plan | None
    missing: str
    findings: tuple[Finding, ...]
    before: Facts | None
    after: Facts | None

    @property
    def refused(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.allowed)

    @property
    def faults(self) -> tuple[str, ...]:
        """Why this stack must not be merged, a line each."""
        lines = [f"no plan to judge: {self.missing}"] if self.plan is None else []
        lines += [f"the plan is not whole: {error}" for error in (self.plan.errors if self.plan else ())]
        if self.after is not None and self.after.refusals:
            lines.append(f"preflight refuses the settings, {_counted(len(self.after.refusals), 'fault')}")
        return (*lines, *(str(finding) for finding in self.refused))


def written(reviews: Sequence[Review]) -> str:
    """The comment, with as many rows as fit."""
    for rows in ROWS:
        body = _body(reviews, rows)
        if len(body) <= BODY_MAX_CHARS:
            return body
    return body[: BODY_MAX_CHARS - 2] + "…\n"


def _body(reviews: Sequence[Review], rows: int) -> str:
    blocks = [MARKER, "## What this pull request would do", _overview(reviews)]
    blocks += [block for review in reviews for block in _section(review, rows)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _overview(reviews: Sequence[Review]) -> str:
    head = ["stack", *(str(kind) for kind in CHANGED_KINDS), "unchanged", "floor a month", "ceiling a month", "gate"]
    return _table(head, [_summary(review) for review in reviews])


def _summary(review: Review) -> list[str]:
    counts = ["?"] * (len(CHANGED_KINDS) + 1)
    if review.plan is not None:
        counts = [str(sum(change.kind is kind for change in review.plan.changes)) for kind in CHANGED_KINDS]
        counts.append(str(review.plan.unchanged))
    before, after = _cost(review, review.before), _cost(review, review.after)
    return [
        _code(review.stack),
        *counts,
        _arrow(before.floor_per_month, after.floor_per_month),
        _arrow(before.ceiling_per_month, after.ceiling_per_month),
        "**refused**" if review.faults else "passed",
    ]


def _section(review: Review, rows: int) -> Iterable[str]:
    yield f"### Stack {_code(review.stack)}"
    if review.faults:
        yield "**Refused**\n\n" + _list(review.faults, rows)
    allowed = [str(finding) for finding in review.findings if finding.allowed]
    if allowed:
        yield "Allowed by label\n\n" + _list(allowed, rows)
    if review.plan is not None:
        yield _origin(review.plan)
        yield _changes(review.plan.changes, rows)
    yield _costs(review, rows)
    yield _preflight(review, rows)


def _origin(plan: Plan) -> str:
    if plan.origin is Origin.PREVIEW:
        return "Changes, from `pulumi preview` against the stack's state:"
    return (
        "Changes between the renders of base and head, without state and credentials. Replacement is known for what "
        "the gate guards; another resource listed as update may be replaced."
    )


def _changes(changes: Sequence[Change], rows: int) -> str:
    if not changes:
        return "None."
    listed = [
        [
            f"**{change.kind}**" if change.kind in (Kind.DELETE, Kind.REPLACE) else str(change.kind),
            _code(change.type),
            _code(change.name),
            ", ".join(_code(key) for key in change.reasons or change.keys),
        ]
        for change in changes
    ]
    return _table(["change", "type", "name", "because of"], listed, rows)


def _costs(review: Review, rows: int) -> str:
    before, after = review.before, review.after
    was, becomes = _cost(review, before), _cost(review, after)
    listed = [["**all**", *_cost_cells(was, becomes)]]
    parts = {**(before.parts if before else {}), **(after.parts if after else {})}
    for name in parts:
        old, new = (_cost_of_part(review, facts, name) for facts in (before, after))
        listed.append([_code(name), *_cost_cells(old, new)])
    head = ["cost, USD", "floor an hour", "ceiling an hour", "floor a month", "ceiling a month"]
    return _table(head, listed, rows + 1)


def _cost_cells(before: Cost, after: Cost) -> list[str]:
    return [
        _arrow(before.floor_per_hour, after.floor_per_hour),
        _arrow(before.ceiling_per_hour, after.ceiling_per_hour),
        _arrow(before.floor_per_month, after.floor_per_month),
        _arrow(before.ceiling_per_month, after.ceiling_per_month),
    ]


_NOTHING: Final = Cost(0.0, 0.0, 0.0, 0.0)
"""What a stack or a part costs that is not there."""


def _cost(review: Review, facts: Facts | None) -> Cost:
    if facts is None:
        return UNKNOWN if review.missing else _NOTHING
    return facts.cost or UNKNOWN


def _cost_of_part(review: Review, facts: Facts | None, name: str) -> Cost:
    if facts is None or facts.cost is None:
        return _cost(review, facts)
    return facts.parts.get(name, _NOTHING)


def _arrow(before: float | None, after: float | None) -> str:
    """`1.00 → 3.50 (+2.50)`, or one number where nothing changes."""
    if before == after:
        return _dollars(after)
    difference = f" ({after - before:+,.2f})" if before is not None and after is not None else ""
    return f"{_dollars(before)} → {_dollars(after)}{difference}"


def _dollars(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"


def _preflight(review: Review, rows: int) -> str:
    facts = review.after
    if facts is None:
        return "Preflight: not known." if review.missing else "Preflight: the stack is not there."
    listed = [
        [
            f"**{verdict}**",
            _code(fault.setting),
            *(_plain(text) for text in (fault.got, fault.limit, fault.why, fault.fix)),
        ]
        for verdict, faults in (("refused", facts.refusals), ("warning", facts.warnings))
        for fault in faults
    ]
    if not listed:
        return "Preflight: nothing to say."
    return _table(["preflight", "setting", "got", "limit", "why", "fix"], listed, rows)


def _table(head: Sequence[str], listed: Sequence[Sequence[str]], rows: int | None = None) -> str:
    kept = listed if rows is None else listed[:rows]
    lines = [_row(head), _row(["---"] * len(head)), *(_row(row) for row in kept)]
    left = len(listed) - len(kept)
    return "\n".join(lines) + (f"\n\n… and {left} more" if left else "")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _list(lines: Sequence[str], rows: int) -> str:
    kept = [f"- {_plain(line)}" for line in lines[: rows + 1]]
    left = len(lines) - len(kept)
    return "\n".join(kept) + (f"\n- … and {left} more" if left else "")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CELL_MAX_CHARS else f"{line[: CELL_MAX_CHARS - 1]}…"


def _code(text: str) -> str:
    """Text as code: nothing in it is markup, mentions nobody, and ends no cell."""
    return f"`{_cut(text).replace('`', chr(39)).replace('|', '¦')}`"


_MARKUP: Final = str.maketrans({character: f"&#{ord(character)};" for character in "&<>@#|`*_~[]!\\"})
"""Characters by which settings, which anyone may write, could become markup, links or mentions."""


def _plain(text: str) -> str:
    return _cut(text).translate(_MARKUP)
