"""What `make` hands to `python -m local`, and what is refused before a command makes anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from local import __main__ as command_line
from local import bench, commands, stack
from local.errors import LocalError
from local.state import require_folder
from services.load.run import LoadError

PROJECT = Path(__file__).resolve().parents[2]
SHOW = "import sys; print(*sys.argv[1:], sep='\\n')"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder with the Makefile, whose Python shows what it is given."""
    shutil.copy(PROJECT / "Makefile", tmp_path)
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "bootstrap.sh").write_text("")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{SHOW}" "$@"\n')
    python.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["up"], ["up"]),
        (["up", "REFRESH=1"], ["up", "--refresh=1"]),
        (["preview"], ["preview", "--stack=local"]),
        (["preflight", "STACK="], ["preflight", "--stack="]),
        (["preflight", 'STACK=dev"; touch spoilt; "'], ["preflight", '--stack=dev"; touch spoilt; "']),
        (["verify", "STACK=`touch spoilt`"], ["verify", "--stack=`touch spoilt`"]),
        (["verify", "STACK=it's"], ["verify", "--stack=it's"]),
        (
            ["down", "STATE=a folder", "CLUSTER=$$(touch spoilt)"],
            ["--state=a folder", "down", "--cluster=$(touch spoilt)"],
        ),
        (
            ["prepare", "CLUSTER=a b", "SIMULATE_GPUS=1", "NODES=x,y", "YES=0"],
            ["prepare", "--cluster=a b", "--simulate-gpus=1", "--nodes=x,y", "--yes=0"],
        ),
        (["images", "PUSH=r/x", "BASE=a; b"], ["images", "--push=r/x", "--base=a; b"]),
        (["images", "EXPORT=*"], ["images", "--export=*"]),
        (
            ["load", "PROFILE=a b", "IN_CLUSTER=0", "RATE=it's"],
            [
                *("load", "--stack=local", "--model=", "--scenario=", "--in-cluster=0", "--pods="),
                *("PROFILE=a b", "RATE=it's"),
            ],
        ),
        (["tune"], ["tune", "--model=", "--cores=", "--p95-ms="]),
        (
            ["tune", "MODEL=a; b", "CORES=$$(touch spoilt)", "P95_MS=5"],
            ["tune", "--model=a; b", "--cores=$(touch spoilt)", "--p95-ms=5"],
        ),
        (["bench", "ONLY=a b"], ["bench", "--only=a b"]),
    ],
)
def test_what_is_named_to_make_is_an_argument_and_never_a_command(
    made: Path, words: list[str], given: list[str]
) -> None:
    bare = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", *words], cwd=made, env=bare, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["-m", "local", *given]
    assert done.returncode == 0
    assert not (made / "spoilt").exists()


@pytest.mark.parametrize("name", ["", "/", "../x", "a b", "organization/triton-fleet/dev", "x" * 101, 'dev"', "d*"])
@pytest.mark.parametrize("command", ["preview", "render", "preflight", "rehearse", "verify"])
def test_a_text_that_is_no_stacks_name_is_refused_before_it_is_part_of_a_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    home = tmp_path / "state"
    assert command_line.main(["--state", str(home), command, f"--stack={name}"]) == 1
    assert capsys.readouterr().err == (
        f"\nerror: STACK={name!r} is no name of a stack: letters, digits, hyphens, underscores and periods, "
        f"at most 100\nfix: use one of: {', '.join(stack.known_stacks())}\n"
    )
    assert not home.exists()


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("DEV", "did you mean 'dev'?"),
        ("Pulumi.dev.yaml", "did you mean 'dev'?"),
        ("prd", "did you mean 'prod'?"),
        ("x", "use one of: dev, eu.prod, prod"),
    ],
)
def test_a_stack_that_is_not_there_is_guessed(tmp_path: Path, name: str, fix: str) -> None:
    for there in ("dev", "prod", "eu.prod"):
        (tmp_path / f"Pulumi.{there}.yaml").touch()
    assert stack.tracked_settings("eu.prod", tmp_path) == tmp_path / "Pulumi.eu.prod.yaml"
    with pytest.raises(LocalError) as refused:
        stack.tracked_settings(name, tmp_path)
    assert str(refused.value) == f"there is no stack {name!r}: Pulumi.{name}.yaml does not exist\nfix: {fix}"


@pytest.mark.parametrize(("variable", "words"), [("REFRESH", ["up", "--refresh"]), ("YES", ["prepare", "--yes"])])
def test_a_switch_is_1_or_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    words: list[str],
) -> None:
    """`YES=0` changed nodes without a question."""
    for name in ("up", "prepare_cluster"):
        monkeypatch.setattr(commands, name, lambda *_, **__: pytest.fail("it was run"))
    command, switch = words
    more = ["--cluster=/kubeconfig", "--simulate-gpus=1"] if command == "prepare" else []
    assert command_line.main(["--state", str(tmp_path), command, *more, f"{switch}=0"]) == 1
    assert capsys.readouterr().err == (
        f"\nerror: {variable}=0: it is 1, or nothing is said\nfix: write {variable}=1 for it, or leave {variable} out\n"
    )


@pytest.mark.parametrize("said", ["STATE", "EXPORT", "cache"])
def test_a_file_named_as_a_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(commands, "images", lambda *_: pytest.fail("it was run"))
    file = tmp_path / "file"
    file.write_text("mine")
    named = {"STATE": tmp_path, "EXPORT": tmp_path, "cache": tmp_path / "cache", said: file / "below"}
    monkeypatch.setenv("TRITON_FLEET_CACHE", str(named["cache"]))
    words = ["--state", str(named["STATE"]), "images", "--export", str(named["EXPORT"])]
    assert command_line.main(words) == 1
    shown = {
        "STATE": f"STATE={file}/below",
        "EXPORT": f"EXPORT={file}/below",
        "cache": "the cache (TRITON_FLEET_CACHE names another)",
    }
    assert capsys.readouterr().err == (
        f"\nerror: {shown[said]}: {file} is no folder\nfix: name a folder; it is made where it is not there yet\n"
    )
    assert file.read_text() == "mine"


@pytest.mark.parametrize("said", ["STATE", "CLUSTER", "EXPORT", "TRACE", "TRITON_FLEET_CACHE"])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("~nobody-is-called-so/x", "there is no user nobody-is-called-so with a home folder"),
        (300 * "x", "File name too long: at most 255 bytes stand between two slashes, and 4095 in all"),
    ],
    ids=["no home", "too long"],
)
def test_a_path_that_there_cannot_be_is_refused(  # noqa: PLR0913, PLR0917 - columns of the table
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, path: str, why: str
) -> None:
    for name in ("images", "up"):
        monkeypatch.setattr(commands, name, lambda *_, **__: pytest.fail("it was run"))
    words = {
        "STATE": ["--state", path, "up"],
        "CLUSTER": ["--state", str(tmp_path), "up", "--cluster", path],
        "EXPORT": ["--state", str(tmp_path), "images", "--export", path],
        "TRACE": ["--state", str(tmp_path), "simulate", "--stack=prod", "--trace", path],
        "TRITON_FLEET_CACHE": ["--state", str(tmp_path), "up"],
    }
    if said == "TRITON_FLEET_CACHE":
        monkeypatch.setenv(said, path)
    assert command_line.main(words[said]) == 1
    assert capsys.readouterr().err.startswith(f"\nerror: {said}={path}: {why}\nfix: ")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_which_nothing_can_be_made_is_refused() -> None:
    """Root may write anywhere but where the kernel says no."""
    with pytest.raises(LocalError) as refused:
        require_folder(Path("/proc/x/y"), "STATE=/proc/x/y")
    assert refused.value.what.startswith(f"STATE=/proc/x/y: nothing can be written to /proc by user {os.geteuid()}: ")


def test_a_folder_that_is_to_be_made_is_accepted_and_not_made(tmp_path: Path) -> None:
    require_folder(tmp_path / "a" / "b", "STATE=a/b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["up"], "\ninterrupted; `make up` goes on where it stopped, `make down` removes what is there\n"),
        (["verify", "--stack=local"], "\ninterrupted\n"),
    ],
)
def test_whoever_interrupts_is_told_how_to_go_on_where_that_helps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], said: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, words[0], interrupted)
    assert command_line.main(["--state", str(tmp_path), *words]) == 130
    assert capsys.readouterr().err == said


def test_a_load_that_is_not_made_is_an_error_and_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measured(*_: object) -> None:
        raise LoadError("the load ended with status 4: nobody listens")

    monkeypatch.setattr(bench, "run", measured)
    assert command_line.main(["--state", str(tmp_path), "bench"]) == 1
    assert capsys.readouterr().err.startswith("\nerror: the load was not made\nthe load ended with status 4: nobody")


def test_a_file_of_another_user_is_an_error_that_says_whose_checkout_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/checkout/.fleet/command.lock")

    monkeypatch.setattr(commands, "up", denied)
    monkeypatch.setenv("TRITON_FLEET_CACHE", str(tmp_path / "cache"))
    assert command_line.main(["--state", str(tmp_path), "up"]) == 1
    assert capsys.readouterr().err == (
        f"\nerror: user {os.geteuid()} may not do this to /checkout/.fleet/command.lock: Permission denied\n"
        "fix: a checkout belongs to one user: run it as the one who used it first, or check it out anew as this one\n"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_checkout_of_another_user_is_an_error_that_says_whose_it_is() -> None:
    with tempfile.TemporaryDirectory() as name:
        checkout = Path(name)
        checkout.chmod(0o755)
        for path in ("local/bootstrap.sh", "requirements/dev.txt"):
            (checkout / path).parent.mkdir()
            shutil.copy(PROJECT / path, checkout / path)
        (checkout / ".venv" / "bin").mkdir(parents=True)
        (checkout / ".venv" / "bin" / "python").symlink_to("/nowhere/python")
        lock = (checkout / "requirements" / "dev.txt").read_bytes()
        digest = subprocess.run(["cksum"], input=lock, capture_output=True, check=True).stdout.decode().split()
        (checkout / ".venv" / f".installed-{'-'.join(digest)}").touch()
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "local/bootstrap.sh"],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stderr == (
        "error: user nobody cannot use this checkout: its Python environment, .venv, is root's\n"
        "fix: run make as root, or check the project out anew as nobody\n"
    )
    assert (done.returncode, done.stdout) == (1, "")
