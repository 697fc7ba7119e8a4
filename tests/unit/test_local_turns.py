"""Commands take turns, and nothing that one started outlives it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from local import turns
from local.state import State

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = """
import os, sys
from pathlib import Path
from local import turns
from local.state import State
folder = Path(sys.argv[1])
turns.interruptible()
with turns.alone(State(folder)):
    print("begun", flush=True)
    done = turns.run([str(folder / "pulumi")], folder=folder, environment=os.environ)
print("engine:", done.returncode)
"""
ENGINE = """#!/bin/sh
# Stands for the engine: a plugin, and an end in order, which takes its time.
sleep 600 & echo $! >plugin
trap 'echo interrupted >>log; while [ -e hold ]; do sleep 0.05; done; echo ended >>log; kill $!; exit 1' INT
echo $$ >engine
wait
"""
DEADLINE_S = 20


def until(what: Path) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while not what.exists() or not what.read_text().endswith("\n"):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return what.read_text()


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    engine = tmp_path / "pulumi"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    return tmp_path


def start(folder: Path) -> subprocess.Popen[str]:
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(folder)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(folder / "engine")
    return command


def pid(folder: Path, name: str) -> int:
    return int(until(folder / name))


def held(folder: Path, monkeypatch: pytest.MonkeyPatch, until_said: str) -> list[str]:
    """Keeps the engine from ending until this command has said something; returns what it says."""
    hold = folder / "hold"
    hold.touch()
    said: list[str] = []

    def say(text: str, **_: object) -> None:
        said.append(text)
        if until_said in text:
            hold.unlink()

    monkeypatch.setattr(turns, "print", say, raising=False)
    return said


def test_a_second_command_waits_and_says_for_whom(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = held(folder, monkeypatch, "waiting")
    first = start(folder)
    os.kill(first.pid, signal.SIGINT)
    with turns.alone(State(folder)):
        assert (folder / "log").read_text() == "interrupted\nended\n"
    assert len(said) == 1
    assert said[0].startswith(f"waiting for another command of this checkout (process {first.pid}, since ")
    first.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_command_ends_when_its_engine_has(folder: Path, number: signal.Signals) -> None:
    command = start(folder)
    os.kill(command.pid, number)
    out, errors = command.communicate(timeout=DEADLINE_S)
    assert (folder / "log").read_text() == "interrupted\nended\n"
    assert out == "begun\n\ninterrupted: pulumi ends what it has begun; again: at once\n"
    assert errors.endswith("KeyboardInterrupt\n")
    assert ended(pid(folder, "engine"))
    assert ended(pid(folder, "plugin"))


def test_an_interrupt_of_the_terminal_reaches_the_engine_once(folder: Path) -> None:
    """Ctrl-C goes to all processes of the terminal's group; the engine takes a second one for an order to drop all."""
    command = start(folder)
    os.killpg(command.pid, signal.SIGINT)
    command.communicate(timeout=DEADLINE_S)
    assert (folder / "log").read_text() == "interrupted\nended\n"


def test_after_a_killed_command_the_next_waits_for_its_engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = held(folder, monkeypatch, "was killed")
    command = start(folder)
    command.kill()
    command.wait()
    with turns.alone(State(folder)):
        assert (folder / "log").read_text() == "interrupted\nended\n"
    assert said[1:] == ["that command was killed; its pulumi is ending what it had begun"]
    command.communicate()


def test_after_a_killed_command_and_engine_the_next_ends_the_plugins(folder: Path) -> None:
    command = start(folder)
    plugin = pid(folder, "plugin")
    # The engine first, stopped so that the command does not yet hear of it.
    command.send_signal(signal.SIGSTOP)
    os.kill(pid(folder, "engine"), signal.SIGKILL)
    command.kill()
    command.wait()
    assert not ended(plugin)
    with turns.alone(State(folder)):
        assert ended(plugin)
    command.communicate()


def test_a_killed_engine_leaves_no_plugin(folder: Path) -> None:
    command = start(folder)
    plugin = pid(folder, "plugin")
    os.kill(pid(folder, "engine"), signal.SIGKILL)
    out, _ = command.communicate(timeout=DEADLINE_S)
    assert out == "begun\nengine: -9\n"
    assert ended(plugin)


def test_what_a_program_says_is_captured_and_what_it_is_given_reaches_it(tmp_path: Path) -> None:
    done = turns.run(["sh", "-c", "cat; echo no >&2; exit 3"], folder=tmp_path, environment={}, capture=True, text="in")
    assert (done.returncode, done.stdout, done.stderr) == (3, "in", "no\n")


def test_a_lock_is_free_when_its_command_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with turns.alone(State(tmp_path / "state")):
            pass
    assert capsys.readouterr().out == ""


def test_a_program_that_is_not_there_leaves_signals_as_they_were(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with pytest.raises(FileNotFoundError):
        turns.run([str(tmp_path / "none")], folder=tmp_path, environment={})
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
