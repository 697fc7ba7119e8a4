"""What the documents name exists: commands, paths, links and tests. A reader can type what the README says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.readme_commands import README_COMMANDS, commands

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(PROJECT).as_posix()
    for pattern in ("*.md", "docs/*.md", "docs/runbooks/*.md", "local/images/*.md", "requirements/*.md")
    for path in PROJECT.glob(pattern)
)
WRAPPED = [
    name for name in DOCUMENTS if name.startswith(("README", "CONTRIBUTING", "docs/")) and "settings" not in name
]
LINE_MAX_CHARS = 120

MADE = (".fleet", ".venv", "rendered", "reports")
"""Folders that commands make; what is in them is not there to be found."""
MADE_FILES = {"index.json", "outputs.json", "preflight.json", "resources.json"}
PARTS_OF_A_MODEL = {"config.pbtxt", "verification.json"}
CHECKS = ("gpus", "monitoring", "placement", "replica", "replicas", "service", "store")
"""What the names of verification's checks begin with; they look like paths."""
SUFFIXES = (".json", ".md", ".mod", ".pbtxt", ".py", ".sh", ".sum", ".toml", ".txt", ".yaml")

BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
TEST = re.compile(r"`(tests/[\w/.-]+\.py)::(\w+)`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def targets(makefile: str) -> set[str]:
    """The commands that `make help` lists."""
    return set(re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE))


def named_targets(text: str) -> set[str]:
    """The make commands that a document names, in its text and in its code blocks."""
    return set(re.findall(r"(?:`|^)make ([a-z]+)", text, re.MULTILINE))


def lost_paths(text: str, folder: Path) -> list[str]:
    """Quoted paths of the repository that are not there; `<name>` and `*` stand for any."""
    lost = []
    for quoted in QUOTED.findall(BLOCK.sub("", text)):
        path, _, _ = quoted.partition("::")
        first = path.split("/", 1)[0]
        if not re.fullmatch(r"[\w.<>*/-]+", path) or path.startswith("/") or not path.strip("."):
            continue
        if "/" in path and (first in (*MADE, *CHECKS) or "." in first[1:]):
            continue  # made by a command, a check's name, a Kubernetes label
        if "/" not in path and (not path.endswith(SUFFIXES) or path in MADE_FILES | PARTS_OF_A_MODEL):
            continue
        pattern = re.sub(r"<\w+>", "*", path).rstrip("/")
        if not any(any(place.glob(pattern)) for place in (PROJECT, folder)):
            lost.append(quoted)
    return lost


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(BLOCK.sub("", text))]
    return {heading.replace(" ", "-") for heading in plain}


def broken_links(text: str, folder: Path) -> list[str]:
    """Links into the repository that lead nowhere."""
    broken = []
    for link in LINK.findall(BLOCK.sub("", text)):
        name, _, anchor = link.partition("#")
        if name.startswith(("http://", "https://")):
            continue
        file = folder / name
        target = text if not name else file.read_text() if anchor and file.is_file() else ""
        if not file.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def lost_tests(text: str) -> list[str]:
    """Tests that a document names and that are not there."""
    return [
        f"{file}::{name}"
        for file, name in TEST.findall(text)
        if not (PROJECT / file).is_file() or f"def {name}(" not in (PROJECT / file).read_text()
    ]


@pytest.fixture(params=DOCUMENTS)
def document(request: pytest.FixtureRequest) -> Path:
    return PROJECT / str(request.param)


def test_each_command_that_a_document_names_exists(document: Path) -> None:
    assert named_targets(document.read_text()) - targets((PROJECT / "Makefile").read_text()) == set()


def test_the_readme_names_every_command() -> None:
    assert named_targets((PROJECT / "README.md").read_text()) == targets((PROJECT / "Makefile").read_text())


def test_each_path_that_a_document_names_exists(document: Path) -> None:
    assert lost_paths(document.read_text(), document.parent) == []


def test_each_link_leads_somewhere(document: Path) -> None:
    assert broken_links(document.read_text(), document.parent) == []


def test_each_test_that_a_document_names_exists(document: Path) -> None:
    assert lost_tests(document.read_text()) == []


def test_what_is_tested_names_its_tests() -> None:
    assert len(TEST.findall((PROJECT / "docs" / "tested.md").read_text())) > 20


def test_the_commands_of_the_readme_are_those_that_the_end_to_end_tests_run() -> None:
    assert tuple(commands((PROJECT / "README.md").read_text())) == README_COMMANDS


@pytest.mark.parametrize("name", WRAPPED)
def test_lines_fit_a_terminal(name: str) -> None:
    """A row of a table and a link cannot be broken."""
    lines = (PROJECT / name).read_text().splitlines()
    assert [line for line in lines if len(line) > LINE_MAX_CHARS and "|" not in line and "](" not in line] == []


# What the checks above find


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("```sh\nmake up\n```\n", ["make up"], id="a command"),
        pytest.param("make up\n", [], id="not in a block"),
        pytest.param("```text\nmake up\n```\n", [], id="in a block that is no shell's"),
        pytest.param("```sh\nmakeup\ncurl make\n```\n", [], id="another command"),
        pytest.param(
            "```sh\nmake  up \\\n  CLUSTER=a\n```\nthen\n```sh\nmake down\n```\n",
            ["make up CLUSTER=a", "make down"],
            id="continued",
        ),
    ],
)
def test_commands_are_found(text: str, found: list[str]) -> None:
    assert commands(text) == found


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("`fleet/names.py`, `local/`, `Pulumi.<stack>.yaml`, `local/images/*.txt`, `Makefile`", []),
        ("`fleet/nams.py` and `flet/names.py`", ["fleet/nams.py", "flet/names.py"]),
        ("`Pulumi.toml` and `nowhere/<stack>.yaml`", ["Pulumi.toml", "nowhere/<stack>.yaml"]),
        ("`.fleet/kubeconfig`, `nvidia.com/gpu`, `/var/lib/store`, `store/write`, `make up`, `…/x.py`", []),
        ("```\n`fleet/nams.py`\n```", []),
    ],
)
def test_lost_paths_are_found(text: str, lost: list[str]) -> None:
    assert lost_paths(text, PROJECT) == lost


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[a](LICENSE) [b](docs/settings.md#models) [c](https://example.org/x)", []),
        ("[a](LICENCE) [b](docs/settings.md#modles)", ["LICENCE", "docs/settings.md#modles"]),
        ("# A heading\n[a](#a-heading) [b](#no-heading)", ["#no-heading"]),
    ],
)
def test_broken_links_are_found(text: str, broken: list[str]) -> None:
    assert broken_links(text, PROJECT) == broken


def test_lost_tests_are_found() -> None:
    here = "tests/unit/test_docs.py"
    text = f"`{here}::test_lost_tests_are_found` `{here}::test_nothing` `tests/unit/test_absent.py::test_a`"
    assert lost_tests(text) == [f"{here}::test_nothing", "tests/unit/test_absent.py::test_a"]
