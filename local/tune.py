"""`make tune`: what batching and how many instances serve a model best on this machine, by measurement.

Triton runs from our image on cores of its own, the load on the one that is left: neither takes the other's time.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fleet import model_repository, tuning
from fleet.faults import Refused, table
from fleet.load.plan import Plan
from fleet.tuning import Measured, Point, Step
from local import load, packages, processes, triton, turns
from local.errors import LocalError
from local.images import build, recipes
from local.state import PROJECT, State, cache_folder
from services.load.run import LoadError, Running
from services.verification.program import WrongAnswerError, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fleet.known_answers import Case
    from fleet.load.plan import Interval
    from fleet.model_repository import ModelFolder

    Progress = Callable[[str], None]

REPORT: Final = "tune.json"
MODELS: Final = "model_repo"
MODEL: Final = "minilm"
CORES_MIN: Final = 2
P95_MAX_MS: Final = round(1000 * (tuning.STEP_S - tuning.WARM_S))
"""What is answered after the step is not counted, so a longer limit would be held by whatever number of users."""
TRIES: Final = 2
"""Of a step: what else the machine does makes answers late, never early, so the better one is the server's own."""
TOGETHER: Final = 16
"""Known requests that are sent at once, so that they are computed together."""
ROUNDS: Final = 2
"""Of a comparison: each has its arms in one order and then in the other."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be tuned: the model, on how many cores, and how soon 95 of 100 answers must be there."""

    model: str
    cores: int
    p95_ms: float


def wish(model: str, cores: str, p95_ms: str, machine_cores: int) -> Wish:
    """What a person said, who may have said nothing. LocalError where it cannot be."""
    if machine_cores < CORES_MIN:
        raise LocalError(
            f"this machine has {machine_cores} core: the load would take the time of the server that it measures",
            fix=f"tune on a machine of {CORES_MIN} cores at least",
        )
    return Wish(
        model or MODEL,
        _whole("CORES", cores or str(machine_cores - 1), machine_cores - 1, "one core is left for the load"),
        _whole("P95_MS", p95_ms or str(tuning.P95_LIMIT_MS), P95_MAX_MS, "answers are counted for so long"),
    )


def _whole(name: str, text: str, most: int, why: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise LocalError(f"{name}={text!r} is no whole number from 1 to {most}: {why}", fix=f"correct {name}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Subject:
    """A model that can be tuned here: its files, and what it is known to answer."""

    folder: ModelFolder
    cases: tuple[Case, ...]

    @property
    def config(self) -> str:
        return self.folder.files[model_repository.CONFIG_FILE].decode()


def subject(model: str, project: Path = PROJECT) -> Subject:
    """The model's folder. LocalError where this machine cannot serve it, or nobody knows how to ask it."""
    ours = sorted(path.name for path in (project / MODELS).iterdir() if path.is_dir())
    if model not in ours:
        raise LocalError(f"MODEL={model!r} is no folder of {MODELS}", fix=f"use one of: {', '.join(ours)}")
    try:
        folder = model_repository.read(project, f"{MODELS}/{model}")
    except Refused as refused:
        raise LocalError(f"MODEL={model} is unfit", details=table(refused.faults), fix="correct its folder") from None
    if folder.config.backend != "python" or any(kind != "KIND_CPU" for kind in folder.config.kinds):
        kinds = ", ".join(folder.config.kinds) or "no kind of instance"
        raise LocalError(
            f"MODEL={model} has {kinds} and backend {folder.config.backend or 'not named'}: the image here has the "
            "Python backend alone, and this machine no GPU",
            fix="tune a model of backend python and KIND_CPU; for others use Triton's Model Analyzer where GPUs are",
        )
    return Subject(folder, load.answers_of(folder).cases)


def tune(given: Wish, state: State, progress: Progress, project: Path = PROJECT) -> None:
    """Measures, says what to set, and writes it all to reports/tune.json; the model's folder stays as it is."""
    tuned = subject(given.model, project)
    began = time.monotonic()
    with arena_of(given, tuned, state, progress) as arena:
        progress(f"\n{tuning.HEADING}")
        for point in tuning.first_points(tuned.folder.config.max_batch_size):
            arena.show(point)
        best = tuning.chosen(arena.measured, given.p95_ms)
        if best is not None:
            for point in tuning.second_points(best.point, given.cores):
                arena.show(point)
        # What the machine did meanwhile shows in what the first of all comes to now.
        arena.show(tuning.UNTUNED)
    seconds = time.monotonic() - began
    best = tuning.chosen(arena.measured, given.p95_ms)
    _write(given, arena.measured, best, seconds, project)
    if best is None:
        raise LocalError(
            f"no point answered within {given.p95_ms:g} ms and rightly",
            fix="raise P95_MS; reports/tune.json has every step",
        )
    untuned = [held.per_s for one in arena.measured if one.point == tuning.UNTUNED and (held := one.best(given.p95_ms))]
    held = best.best(given.p95_ms)
    gain = f", {held.per_s / statistics.fmean(untuned):.2f} times the untuned" if held and untuned else ""
    progress(
        f"\nbest within {given.p95_ms:g} ms on {given.cores} core{'s'[: given.cores != 1]}: {best.point}{gain}; "
        f"{seconds:.0f} s in all\nin {MODELS}/{given.model}/{model_repository.CONFIG_FILE}:\n\n"
        f"{tuning.lines(best.point)}"
    )
    if best.point.threads > 1:
        progress(f"and in the image's environment (local/images/recipes.py): OPENBLAS_NUM_THREADS={best.point.threads}")


def compare(state: State, progress: Progress) -> float:
    """Throughput of the untuned model by that of the model as it is shipped, at the same limit of p95."""
    given = wish("", "1", "", len(os.sched_getaffinity(0)))
    tuned = subject(given.model)
    figures: dict[bool, list[float]] = {True: [], False: []}
    with arena_of(given, tuned, state, progress) as arena:
        for as_shipped in (False, True, True, False) * (ROUNDS // 2):
            one = arena.measure(tuning.UNTUNED, None if not as_shipped else tuned.config)
            best = one.best(given.p95_ms)
            name = "as shipped" if as_shipped else "untuned"
            if best is None:
                raise LocalError(
                    f"{name}: {one.wrong or f'no step within {given.p95_ms:g} ms'}", fix="is the machine busy?"
                )
            progress(
                f"bench: tuned: {name}: {best.per_s:.1f}/s, p95 {best.p95_ms:.0f} ms with {best.users} users, "
                f"batches of {one.batch:.1f}; Triton computed {best.server:.0%} of its core's time, "
                f"the load {best.load:.0%} of its own"
            )
            figures[as_shipped].append(best.per_s)
    return statistics.fmean(figures[False]) / statistics.fmean(figures[True])


@contextmanager
def arena_of(given: Wish, tuned: Subject, state: State, progress: Progress) -> Iterator[Arena]:
    """Where points are measured: the image unpacked, this process and the load on the core that is left for them."""
    packages.require_machine()
    packages.ensure(progress)
    [image] = build.ensure(cache_folder(), [recipes.TRITON], progress, {})
    home = State(state.root / "tune")
    work = home.root / "work"
    mine = os.sched_getaffinity(0)
    with turns.alone(home):
        try:
            progress(f"tune: unpacking {image.ref}")
            triton.unpack(image, work / "root")
            arena = Arena(given, tuned, work, progress, sorted(mine))
            # Threads and programs that are started from here on inherit it; the load is one of them.
            os.sched_setaffinity(0, arena.ours)
            yield arena
        finally:
            os.sched_setaffinity(0, mine)
            shutil.rmtree(work, ignore_errors=True)


@dataclass
class Arena:
    """Measures points, one after the other."""

    given: Wish
    tuned: Subject
    folder: Path
    progress: Progress
    machine: list[int]
    measured: list[Measured] = field(default_factory=list)
    _start: int = tuning.USERS_START
    """The search begins where the last one ended: points do not differ so much."""

    @property
    def theirs(self) -> list[int]:
        """Triton's cores."""
        return self.machine[: self.given.cores]

    @property
    def ours(self) -> list[int]:
        return self.machine[self.given.cores :]

    def show(self, point: Point) -> None:
        one = self.measure(point)
        self.measured.append(one)
        self.progress(tuning.row(one, self.given.p95_ms))

    def measure(self, point: Point, config: str | None = None) -> Measured:
        """A point, or a whole `config.pbtxt` in its place, from the start of the server to its end."""
        with self.serving(point, config) as server:
            wrong = self.wrong(server)
            before = self._counts(server)
            steps = () if wrong else tuple(self._steps(server))
            after = self._counts(server)
            memory_mib = sum(map(processes.pss_kib, processes.family(server.pid))) / 1024
        texts, batches = (late - early for late, early in zip(after, before, strict=True))
        return Measured(point, steps, texts / max(batches, 1), memory_mib, wrong)

    @contextmanager
    def serving(self, point: Point, config: str | None = None) -> Iterator[triton.Server]:
        """Triton with the model, which it says that it serves as the point says."""
        model = self.tuned.folder.name
        root, models, log = (self.folder / name for name in ("root", "models", "triton.log"))
        self._lay(models / model, tuning.configured(self.tuned.config, point) if config is None else config)
        with triton.serving(root, models, log, self.theirs, point.threads) as server:
            try:
                server.load(model)
                other = tuning.differs(server.get(f"/v2/models/{model}/config"), point) if config is None else ""
            except triton.RefusedError as error:
                raise LocalError(
                    f"Triton refused {model} with {point}: {error}",
                    details=log.read_text(errors="replace")[-2000:],
                    fix="correct the model",
                ) from error
            if other:
                raise LocalError(
                    f"Triton serves another configuration than it was given: {other}",
                    fix="set it by hand: this Triton understands the lines in another way",
                )
            try:
                yield server
            except (triton.RefusedError, LoadError) as error:
                raise LocalError(
                    f"{model} with {point} could not be measured: {error}",
                    details=log.read_text(errors="replace")[-2000:],
                    fix="run it again; where it ends the same way, correct what Triton says above",
                ) from error

    def _lay(self, target: Path, config: str) -> None:
        shutil.rmtree(target, ignore_errors=True)
        for path, content in {**self.tuned.folder.files, model_repository.CONFIG_FILE: config.encode()}.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def _counts(self, server: triton.Server) -> tuple[int, int]:
        """Texts that were computed since the model was loaded, and in how many batches."""
        [stats] = server.get(f"/v2/models/{self.tuned.folder.name}/stats")["model_stats"]
        return int(stats["inference_count"]), int(stats["execution_count"])

    def wrong(self, server: triton.Server) -> str:
        """What the model answers wrongly to known requests that come all at once; empty where nothing."""
        cases = [self.tuned.cases[number % len(self.tuned.cases)] for number in range(TOGETHER)]

        def ask(case: Case) -> str:
            path = f"/v2/models/{self.tuned.folder.name}/infer"
            try:
                answer = server.post(path, {"inputs": case.request()["inputs"]})
                got: list[Any] = next((one["data"] for one in answer["outputs"] if one["name"] == case.output), [])
                judge(case.model_dump(mode="json"), got)
            except (triton.RefusedError, WrongAnswerError) as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(TOGETHER) as pool:
            return next(filter(None, pool.map(ask, cases)), "")

    def _steps(self, server: triton.Server) -> Iterator[Step]:
        held: dict[int, bool] = {}
        while (users := tuning.next_users(held, self._start)) is not None:
            for _ in range(TRIES):
                made = self._step(server, users)
                held[users] = made.within(self.given.p95_ms)
                yield made
                if held[users]:
                    self._start = users
                    break

    def _step(self, server: triton.Server, users: int) -> Step:
        plan = Plan(
            host=triton.ADDRESS,
            port=server.port,
            model=self.tuned.folder.name,
            scenario="infer",
            case=self.tuned.cases[0].request(),
            arrivals="closed",
            points=((0, users),),
            duration_s=tuning.STEP_S,
            keep_alive=True,
        )
        seen: list[tuple[float, float, float]] = []

        def heard(_: Interval) -> None:
            seen.append((time.monotonic(), _computed_s(server.pid), _computed_s(running.pid)))

        with Running(plan, heard) as running:
            made = running.made()
        wall_s, server_s, load_s = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
        return tuning.step(
            users, made.requests, server_s / (wall_s * len(self.theirs)), load_s / (wall_s * len(self.ours))
        )


def _computed_s(pid: int) -> float:
    """Seconds that a process and all that descends from it have computed."""
    return sum(map(processes.cpu_s, processes.family(pid)), 0.0)


def _write(given: Wish, measured: list[Measured], best: Measured | None, seconds: float, project: Path) -> None:
    reports = project / "reports"
    reports.mkdir(exist_ok=True)
    points = [asdict(one) for one in measured]
    for step in (step for point in points for step in point["steps"]):
        # JSON has no infinity.
        step["p95_ms"] = step["p95_ms"] if math.isfinite(step["p95_ms"]) else None
    report = {
        **asdict(given),
        "machine_cores": os.cpu_count(),
        "seconds": round(seconds),
        "chosen": None if best is None else asdict(best.point),
        "lines": None if best is None else tuning.lines(best.point),
        "points": points,
    }
    (reports / REPORT).write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
