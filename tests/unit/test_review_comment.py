"""The comment, whole."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleet.faults import Fault
from review import comment, facts, gate
from review.comment import Review, written
from review.facts import Cost, Facts
from review.plan import Change, Kind, Origin, Plan, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable

FILES = "aws:efs/fileSystem:FileSystem"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
WARNING = Fault("models[0].placements[0].replicas", "1", "2 or more", "one replica | no spare", "raise it")
REFUSAL = Fault("skus[0].nodes.max", "0", "1 or more", "no node", "raise max")
BEFORE = Facts("prod", "prod", Cost(10.0, 20.0, 7300.0, 14600.0), {"a100": Cost(10.0, 20.0, 7300.0, 14600.0)}, (), ())
AFTER = Facts(
    "prod",
    "prod",
    Cost(12.5, None, 9125.0, None),
    {"a100": Cost(10.0, 20.0, 7300.0, 14600.0), "h100": Cost(2.5, None, 1825.0, None)},
    (),
    (WARNING,),
)


def change(kind: Kind, type_: str, name: str, keys: Iterable[str] = (), reasons: Iterable[str] = ()) -> Change:
    return Change(kind, f"urn:pulumi:prod::triton-fleet::{type_}::{name}", {}, {}, tuple(keys), tuple(reasons))


def review(*changes: Change, labels: frozenset[str] = frozenset(), after: Facts | None = AFTER) -> Review:
    plan = Plan(Origin.PREVIEW, changes, 7)
    return Review("prod", plan, "", gate.judge(plan, {"prod"}, labels), BEFORE, after)


def test_the_whole_comment() -> None:
    prod = review(
        change(Kind.REPLACE, FILES, "store", ["encrypted", "tags.a"], ["encrypted"]),
        change(Kind.UPDATE, CONFIG_MAP, "model", ["data"]),
    )
    dev = Review("dev", Plan(Origin.RENDERS, (), 3), "", (), None, replace(BEFORE, stack="dev", environment="dev"))
    assert written([dev, prod]) == (
        """<!-- triton-fleet-review -->

## What this pull request would do

| stack | create | import | update | replace | delete | unchanged | floor a month | ceiling a month | gate |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| `dev` | 0 | 0 | 0 | 0 | 0 | 3 | 0.00 → 7,300.00 (+7,300.00) | 0.00 → 14,600.00 (+14,600.00) | passed |
| `prod` | 0 | 0 | 1 | 1 | 0 | 7 | 7,300.00 → 9,125.00 (+1,825.00) | 14,600.00 → unknown | **refused** |

### Stack `dev`

Changes between the renders of base and head, without state and credentials. Replacement is known for what the gate guards; another resource listed as update may be replaced.

None.

| cost, USD | floor an hour | ceiling an hour | floor a month | ceiling a month |
| --- | --- | --- | --- | --- |
| **all** | 0.00 → 10.00 (+10.00) | 0.00 → 20.00 (+20.00) | 0.00 → 7,300.00 (+7,300.00) | 0.00 → 14,600.00 (+14,600.00) |
| `a100` | 0.00 → 10.00 (+10.00) | 0.00 → 20.00 (+20.00) | 0.00 → 7,300.00 (+7,300.00) | 0.00 → 14,600.00 (+14,600.00) |

Preflight: nothing to say.

### Stack `prod`

**Refused**

- replaces the file system store (aws:efs/fileSystem:FileSystem): it holds weights and engines; to allow it, add the label 'allow-prod-file-system'

Changes, from `pulumi preview` against the stack's state:

| change | type | name | because of |
| --- | --- | --- | --- |
| **replace** | `aws:efs/fileSystem:FileSystem` | `store` | `encrypted` |
| update | `kubernetes:core/v1:ConfigMap` | `model` | `data` |

| cost, USD | floor an hour | ceiling an hour | floor a month | ceiling a month |
| --- | --- | --- | --- | --- |
| **all** | 10.00 → 12.50 (+2.50) | 20.00 → unknown | 7,300.00 → 9,125.00 (+1,825.00) | 14,600.00 → unknown |
| `a100` | 10.00 | 20.00 | 7,300.00 | 14,600.00 |
| `h100` | 0.00 → 2.50 (+2.50) | 0.00 → unknown | 0.00 → 1,825.00 (+1,825.00) | 0.00 → unknown |

| preflight | setting | got | limit | why | fix |
| --- | --- | --- | --- | --- | --- |
| **warning** | `models[0].placements[0].replicas` | 1 | 2 or more | one replica &#124; no spare | raise it |
"""  # noqa: E501 - as it is published
    )


def test_an_allowed_loss_is_told_and_refuses_nothing() -> None:
    one = review(change(Kind.DELETE, FILES, "store"), labels=frozenset({"allow-prod-file-system"}))
    text = written([one])
    assert one.faults == ()
    assert "| passed |" in text
    assert (
        "Allowed by label\n\n- deletes the file system store (aws:efs/fileSystem:FileSystem): it holds weights and "
        "engines; allowed by label 'allow-prod-file-system'\n"
    ) in text
    assert "**Refused**" not in text


@pytest.mark.parametrize(
    ("one", "faults"),
    [
        pytest.param(review(), (), id="nothing changes"),
        pytest.param(
            Review("prod", None, "the job failed", (), BEFORE, AFTER),
            ("no plan to judge: the job failed",),
            id="no plan",
        ),
        pytest.param(
            replace(review(), plan=Plan(Origin.PREVIEW, (), 0, ("it broke", "again"))),
            ("the plan is not whole: it broke", "the plan is not whole: again"),
            id="a preview that failed",
        ),
        pytest.param(
            review(after=replace(AFTER, refusals=(REFUSAL,))),
            ("preflight refuses the settings, 1 fault",),
            id="settings that cannot work",
        ),
        pytest.param(review(after=None), (), id="a stack that goes, with nothing in it"),
    ],
)
def test_why_a_stack_is_refused(one: Review, faults: tuple[str, ...]) -> None:
    text = written([one])
    assert one.faults == faults
    assert ("| **refused** |" in text) == bool(faults)
    assert all(f"- {fault}" in text for fault in faults)


@pytest.mark.parametrize(
    ("missing", "cost", "preflight"),
    [
        pytest.param("", "7,300.00 → 0.00 (-7,300.00)", "Preflight: the stack is not there.", id="a stack that goes"),
        pytest.param("its facts", "7,300.00 → unknown", "Preflight: not known.", id="facts that nobody wrote"),
    ],
)
def test_what_is_not_known_costs_not_nothing(missing: str, cost: str, preflight: str) -> None:
    text = written([replace(review(after=None), missing=missing)])
    assert text.count(cost) == 3  # in the overview, of all, and of the SKU
    assert text.endswith(f"{preflight}\n")


def test_settings_are_text_whatever_they_hold() -> None:
    """No markup, no mention, no link, no end of a cell, and no flood."""
    nasty = "<img src=x> @octocat [a](b) `c` | *d* #1\nnext line"
    fault = Fault(f"skus.{nasty}", nasty, "x" * 1000, "why", "fix")
    text = written([review(change(Kind.UPDATE, CONFIG_MAP, nasty, [nasty]), after=replace(AFTER, warnings=(fault,)))])
    (row,) = [line for line in text.splitlines() if line.startswith("| **warning**")]
    cells = row.strip("| ").split(" | ")
    plain = "&#60;img src=x&#62; &#64;octocat &#91;a&#93;(b) &#96;c&#96; &#124; &#42;d&#42; &#35;1 next line"
    code = "`skus.<img src=x> @octocat [a](b) 'c' ¦ *d* #1 next line`"
    assert cells == ["**warning**", code, plain, f"{'x' * 299}…", "why", "fix"]
    (row,) = [line for line in text.splitlines() if line.startswith("| update")]
    shown = code.replace("skus.", "")
    assert row == f"| update | `{CONFIG_MAP}` | {shown} | {shown} |"


def test_a_comment_is_never_longer_than_github_takes_and_shows_what_is_lost_first() -> None:
    many = [change(Kind.UPDATE, CONFIG_MAP, f"{n:04}-{'n' * 200}", [f"k{n}" + "k" * 200]) for n in range(2000)]
    lost = change(Kind.DELETE, FILES, "store")
    warnings = tuple(replace(WARNING, setting=f"s{n}" + "s" * 280, why="w" * 280) for n in range(500))
    text = written([review(lost, *many, after=replace(AFTER, warnings=warnings))] * 3)
    assert len(text) <= comment.BODY_MAX_CHARS
    assert text.count("| **delete** | `aws:efs/fileSystem:FileSystem` | `store` |") == 3
    shown = len(re.findall(r"^\| update \|", text, re.MULTILINE))
    assert text.count(f"… and {2000 - shown // 3} more\n") == 3
    assert shown > 3
    few = written([review(lost, *many[:20])])
    assert "… and" not in few


def test_facts_survive_their_file() -> None:
    everything = replace(AFTER, refusals=(REFUSAL,), environment=None, cost=None)
    for one in (BEFORE, AFTER, everything, None):
        assert facts.read(facts.dumped(one)) == one


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", facts.dumped(BEFORE).replace("floor_per_month", "floor")])
def test_facts_that_cannot_be_read_are_none(text: str) -> None:
    with pytest.raises(Unreadable, match=r"the facts of a checkout cannot be read \(\w+\)"):
        facts.read(text)
