"""One command at a time per state folder, also after one was killed.

The lock is a file, held by every process that inherited it: the command, and the engine with its plugins that it runs.
A command that is killed therefore goes on holding it until its engine has ended, which is asked to (SIGINT) when the
command is gone; what an engine that was killed left behind is ended by the next command.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from local.state import State

ENGINE = "pulumi"
OWNER = re.compile(r"process ([0-9]+),")
LOOK_EVERY_S = 0.2
PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent ends."""
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 2
"""Interrupts that the engine gets: it ends what it has begun at the first, and at once at the second."""

_held: list[tuple[int, Path]] = []


@contextmanager
def alone(state: State) -> Iterator[None]:
    """The folder's lock; a second command says for whom it waits, and ends what a killed one left behind."""
    state.root.mkdir(parents=True, exist_ok=True)
    path = state.root.resolve() / "command.lock"
    with path.open("a+") as lock:
        if not _taken(lock.fileno()):
            _await(lock.fileno(), path)
        lock.truncate(0)
        lock.write(f"process {os.getpid()}, since {time.strftime('%H:%M:%S')}")
        lock.flush()
        _held.append((lock.fileno(), path))
        try:
            yield
        finally:
            _held.pop()


def run(
    argv: Sequence[str], *, folder: Path, environment: Mapping[str, str], capture: bool = False, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program that holds the locks of this command too. It is never left running.

    It stands in a process group of its own, so that an interrupt reaches it once, from here. Then this waits until it
    has ended, and goes on being interrupted.
    """
    pipe = subprocess.PIPE if capture else None
    # An interrupt that comes while the program is being started reaches it once it is there.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=pipe,
            stderr=pipe,
            text=True,
            pass_fds=[descriptor for descriptor, _ in _held],
            process_group=0,
            preexec_fn=_end_with(os.getpid(), before),  # noqa: PLW1509 - no threads here, and nothing else sets it
        )
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    with process:
        interrupts = 0
        while True:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                out, errors = process.communicate(text if interrupts == 0 else None)
                break
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts == 1 and not capture:
                    # Where the terminal is gone, nobody is told.
                    with suppress(OSError):
                        print(f"\ninterrupted: {Path(argv[0]).name} ends what it has begun; again: at once", flush=True)
                process.send_signal(signal.SIGINT if interrupts <= PATIENCE else signal.SIGKILL)
        if process.returncode < 0:
            # What kills an engine leaves its plugins.
            for _, path in _held:
                _end(holders(path))
        if interrupts:
            raise KeyboardInterrupt
        return subprocess.CompletedProcess(list(argv), process.returncode, out or "", errors or "")


def interruptible() -> None:
    """An end of the terminal or of the machine is an interrupt: what runs is ended in order."""
    for number in INTERRUPTS[1:]:
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def holders(path: Path) -> dict[int, str]:
    """The other processes that have a file open, each with the name of its program."""
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            if any(Path(each).readlink() == path for each in (process / "fd").iterdir()):
                found[int(process.name)] = (process / "comm").read_text().strip()
        except OSError:
            # Gone since, or another user's.
            continue
    return found


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _await(descriptor: int, path: Path) -> None:
    """Until the lock is free."""
    print(f"waiting for another command of this checkout ({path.read_text().strip()})", flush=True)
    told = False
    while not _taken(descriptor):
        there = holders(path)
        owner = OWNER.match(path.read_text())
        if owner and int(owner[1]) not in there:
            # Other commands have the file open too, waiting as this one does.
            left = {pid: name for pid, name in there.items() if not _is_command(pid)}
            if ENGINE not in left.values():
                _end(left)
            elif not told:
                print("that command was killed; its pulumi is ending what it had begun", flush=True)
                told = True
        time.sleep(LOOK_EVERY_S)


def _is_command(pid: int) -> bool:
    """Whether it is one of ours: `python -m local …`."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[1:3] == [b"-m", b"local"]


def _end(left: Mapping[int, str]) -> None:
    for pid in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _end_with(parent: int, mask: set[signal.Signals | int]) -> Callable[[], None]:
    """What a child does before it becomes a program: it asks for SIGINT when its parent ends, and hears signals."""
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if os.getppid() != parent:
            os._exit(1)

    return ask
