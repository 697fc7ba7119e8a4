"""local/images: what makes an image new, what a layer holds, what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from local import toolchain
from local.errors import LocalError
from local.images import archive, build, debian, recipes, wheels, workshop
from local.images.program import Program
from local.images.recipes import COREDNS, PAUSE, RECIPES, TOOLS, TRITON, Recipe
from local.images.wheels import Pin, Placement
from local.images.workshop import Workshop, file_digest

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Path(__file__).resolve().parents[2]


# What makes an image new


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """A copy of local/images that a test may change, and files that stand for the programs."""
    folder = tmp_path / "images"
    shutil.copytree(build.HERE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    binaries = {name: tmp_path / name for name in recipes.programs()}
    for program in binaries.values():
        program.write_bytes(b"a program")
    return Workshop(folder, tmp_path / "cache", binaries)


def _append(name: str) -> Callable[[Workshop], None]:
    def change(shop: Workshop) -> None:
        with (shop.folder / name).open("a") as file:
            file.write("\n# changed\n")

    return change


def _other(name: str) -> Callable[[Workshop], None]:
    def change(shop: Workshop) -> None:
        shop.binaries[name].write_bytes(b"another one")

    return change


def _later_program(shop: Workshop) -> None:
    os.utime(shop.binaries["coredns"], (1, 1))


ALL = {recipe.ref for recipe in RECIPES}


@pytest.mark.parametrize(
    ("change", "remade"),
    [
        pytest.param(_later_program, set(), id="same program, another time"),
        pytest.param(_append("README.md"), set(), id="a file that no image is made of"),
        pytest.param(_append("build.py"), set(), id="the order of work"),
        pytest.param(_other("coredns"), {COREDNS}, id="the program"),
        pytest.param(_other("nfd-gc"), {recipes.NODE_FEATURE_DISCOVERY}, id="one of several programs"),
        pytest.param(_append("pause/main.go"), {PAUSE}, id="the source"),
        pytest.param(_append("tools.txt"), {TOOLS}, id="the lock of tools"),
        pytest.param(_append("triton-server.txt"), {TRITON}, id="the lock of the server"),
        pytest.param(_append("triton-python.txt"), {TRITON}, id="the lock of the model's packages"),
        pytest.param(_append("minilm.txt"), {TRITON}, id="the lock of the weights"),
        pytest.param(_append("base.txt"), {TRITON, TOOLS}, id="the shared lock"),
        pytest.param(_append("debian.py"), {TRITON, TOOLS}, id="how the base is made"),
        pytest.param(_append("wheels.py"), {TRITON, TOOLS}, id="how packages are placed"),
        pytest.param(_append("program.py"), ALL - {TRITON, TOOLS}, id="how programs are placed"),
        pytest.param(_append("archive.py"), ALL, id="how layers are written"),
    ],
)
def test_an_image_is_made_again_when_what_it_is_made_from_changes(
    shop: Workshop, change: Callable[[Workshop], None], remade: set[str]
) -> None:
    before = {recipe.ref: build.image_key(recipe, shop) for recipe in RECIPES}
    change(shop)
    after = {recipe.ref: build.image_key(recipe, shop) for recipe in RECIPES}
    assert {ref for ref, key in after.items() if key != before[ref]} == remade


def test_a_programs_digest_is_reckoned_once(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shop.binaries["coredns"]
    reckoned: list[Path] = []

    def reckon(path: Path) -> str:
        reckoned.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(workshop, "file_digest", reckon)
    for text in (b"a program", b"b program"):
        program.write_bytes(text)
        for _ in range(2):
            assert workshop.program_digest(program, shop.cache) == hashlib.sha256(text).hexdigest()
    assert reckoned == [program, program]


def test_settings_make_a_new_image_of_the_same_layers(shop: Workshop) -> None:
    recipe = _of(TOOLS)
    other = replace(recipe, settings=replace(recipe.settings, user="1001:1001"))
    assert build.image_key(other, shop) != build.image_key(recipe, shop)
    assert [build.layer_key(layer, shop) for layer in other.layers] == [
        build.layer_key(layer, shop) for layer in recipe.layers
    ]


def test_triton_and_tools_share_their_lowest_layers(shop: Workshop) -> None:
    triton, tools = ([build.layer_key(layer, shop) for layer in _of(ref).layers] for ref in (TRITON, TOOLS))
    assert [key for key in triton if key in tools] == triton[:2] == tools[:2]


def test_the_local_stack_names_images_that_a_recipe_makes() -> None:
    config = yaml.safe_load((PROJECT / "Pulumi.local.yaml").read_text())["config"]["triton-fleet:images"]
    assert (config["triton"], config["tools"]) == (TRITON, TOOLS)


def _of(ref: str) -> Recipe:
    return next(recipe for recipe in RECIPES if recipe.ref == ref)


# Programs of their own images


def test_a_program_lies_where_the_upstream_image_has_it(shop: Workshop) -> None:
    placed = {}
    for recipe in RECIPES:
        for layer in recipe.layers:
            if isinstance(layer, Program) and layer.source is None:
                scratch = shop.cache / recipe.name / layer.name
                scratch.mkdir(parents=True)
                with tarfile.open(layer.make(shop, scratch, scratch / "layer.tar").tar) as tar:
                    [path] = [entry.name for entry in tar if entry.isfile() and entry.mode == 0o755]
                placed[layer.name] = (recipe.ref, path, recipe.settings.entrypoint, recipe.settings.user)
    version = toolchain.PROMETHEUS_OPERATOR
    home = "triton-fleet.local"
    nfd = f"{home}/node-feature-discovery:{toolchain.NODE_FEATURE_DISCOVERY}"
    reloader = "prometheus-config-reloader"
    nobody = "65534:65534"
    assert placed == {
        # name: (image, path, entry point, user), as in the Dockerfile of each release
        "coredns": (COREDNS, "coredns", ("/coredns",), "1000:1000"),
        "prometheus-operator": (
            f"{home}/prometheus-operator:v{version}",
            "bin/operator",
            ("/bin/operator",),
            nobody,
        ),
        reloader: (f"{home}/{reloader}:v{version}", f"bin/{reloader}", (f"/bin/{reloader}",), nobody),
        "prometheus": (
            f"{home}/prometheus:v{toolchain.PROMETHEUS}",
            "bin/prometheus",
            ("/bin/prometheus",),
            nobody,
        ),
        "alertmanager": (
            f"{home}/alertmanager:v{toolchain.ALERTMANAGER}",
            "bin/alertmanager",
            ("/bin/alertmanager",),
            nobody,
        ),
        "prometheus-adapter": (
            f"{home}/prometheus-adapter:{toolchain.PROMETHEUS_ADAPTER}",
            "adapter",
            ("/adapter",),
            nobody,
        ),
        "kube-state-metrics": (
            f"{home}/kube-state-metrics:{toolchain.KUBE_STATE_METRICS}",
            "kube-state-metrics",
            ("/kube-state-metrics",),
            nobody,
        ),
        "metrics-server": (
            f"{home}/metrics-server:{toolchain.METRICS_SERVER}",
            "metrics-server",
            ("/metrics-server",),
            nobody,
        ),
        "gpu-stand-in": (recipes.GPU_STAND_IN, "gpu-stand-in", ("/gpu-stand-in",), "0:0"),
        **{name: (nfd, f"usr/bin/{name}", (), nobody) for name in ("nfd-master", "nfd-worker", "nfd-gc")},
    }


# Sizes


def _layers(*sizes: int) -> list[archive.Layer]:
    return [archive.Layer(Path(f"part{number}-0123.tar"), "sha256:0", size) for number, size in enumerate(sizes)]


def test_an_image_below_its_limit_passes() -> None:
    build.check_size(_of(TRITON), _layers((1 << 30) - 2, 1))


def test_an_image_at_its_limit_is_refused_with_what_takes_the_room() -> None:
    with pytest.raises(LocalError) as refused:
        build.check_size(_of(TRITON), _layers(1 << 20, (1 << 30) - (1 << 20)))
    assert str(refused.value) == (
        f"image {TRITON} is too big\n"
        "   got:   1024.0 MiB unpacked (part0 1.0 MiB, part1 1023.0 MiB)\n"
        "   limit: less than 1024.0 MiB\n"
        "   why:   each simulated node keeps an unpacked copy on the same disk\n"
        "fix: leave out of the biggest layer what serving does not read: its placements in local/images/recipes.py"
    )


def test_an_image_that_is_too_big_leaves_no_archive(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "RECIPES", (replace(_of(COREDNS), max_bytes=len(b"a program")),))
    with pytest.raises(LocalError, match="is too big"):
        build.ensure(shop.cache, None, print, shop.binaries)
    assert list((shop.cache / "images").iterdir()) == []


# Layers and archives


def _tree(root: Path, *, backwards: bool) -> Path:
    """A folder with what file systems have; written in two orders, at two times."""
    files = {"bin/run": b"#!/bin/sh\n", "lib/a.py": b"a = 1\n", "lib/empty": b""}
    for name in sorted(files, reverse=backwards):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
        path.chmod(0o644)
    (root / "bin/run").chmod(0o4755)
    (root / "lib/again").hardlink_to(root / "lib/a.py")
    (root / "link").symlink_to("bin/run")
    (root / "bin").chmod(0o755)
    (root / "lib").chmod(0o1777)
    os.utime(root / "lib/a.py", (1_000_000_000, 1_000_000_000))
    return root


def test_equal_folders_are_equal_layers_whenever_they_were_written(tmp_path: Path) -> None:
    first = archive.write_layer(_tree(tmp_path / "1", backwards=False), tmp_path / "1.tar", made_after_s=1_500_000_000)
    second = archive.write_layer(_tree(tmp_path / "2", backwards=True), tmp_path / "2.tar", made_after_s=1_500_000_000)
    assert first.tar.read_bytes() == second.tar.read_bytes()
    assert first.diff_id == second.diff_id == f"sha256:{file_digest(first.tar)}"


def test_a_layer_holds_the_folder_without_owners_and_extra_rights(tmp_path: Path) -> None:
    layer = archive.write_layer(_tree(tmp_path / "1", backwards=False), tmp_path / "1.tar", made_after_s=1_500_000_000)
    with tarfile.open(layer.tar) as tar:
        held = {
            entry.name: (entry.type, oct(entry.mode), entry.linkname, entry.size, int(entry.mtime)) for entry in tar
        }
        owners = {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in tar}
    made = archive.EPOCH_S
    link_mode = oct(stat.S_IMODE((tmp_path / "1/link").lstat().st_mode))
    assert list(held) == sorted(held)
    assert held == {
        "bin": (tarfile.DIRTYPE, "0o755", "", 0, made),
        "bin/run": (tarfile.REGTYPE, "0o755", "", 10, made),
        "lib": (tarfile.DIRTYPE, "0o1777", "", 0, made),
        "lib/a.py": (tarfile.REGTYPE, "0o644", "", 6, 1_000_000_000),
        "lib/again": (tarfile.LNKTYPE, "0o644", "lib/a.py", 0, 1_000_000_000),
        "lib/empty": (tarfile.REGTYPE, "0o644", "", 0, made),
        "link": (tarfile.SYMTYPE, link_mode, "bin/run", 0, made),
    }
    assert owners == {(0, 0, "", "")}
    assert layer.unpacked_bytes == 16


def test_a_pipe_is_no_content_of_a_layer(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree/pipe")
    with pytest.raises(ValueError, match="pipe is neither file, folder nor link"):
        archive.write_layer(tmp_path / "tree", tmp_path / "layer.tar", made_after_s=0)


def test_a_layer_is_recalled_only_when_it_was_finished(tmp_path: Path) -> None:
    layer = archive.write_layer(_tree(tmp_path / "1", backwards=False), tmp_path / "1.tar", made_after_s=0)
    assert archive.recall(layer.tar) is None
    archive.remember(layer)
    assert archive.recall(layer.tar) == layer
    layer.tar.unlink()
    assert archive.recall(layer.tar) is None


def test_an_archive_says_what_containers_need(tmp_path: Path) -> None:
    layer = archive.write_layer(_tree(tmp_path / "1", backwards=False), tmp_path / "1.tar", made_after_s=0)
    settings = archive.Settings("7:8", {"B": "2", "A": "1"}, entrypoint=("/bin/run",), command=("x", "y"))
    archive.write_image(tmp_path / "image.tar", "example.local/a:1", [layer], settings, "amd64")
    with tarfile.open(tmp_path / "image.tar") as tar:
        held = {name: content.read() for name in tar.getnames() if (content := tar.extractfile(name))}
    [manifest] = json.loads(held["manifest.json"])
    hex_digest = layer.diff_id.removeprefix("sha256:")
    assert manifest == {
        "Config": f"{hashlib.sha256(held[manifest['Config']]).hexdigest()}.json",
        "RepoTags": ["example.local/a:1"],
        "Layers": [f"{hex_digest}.tar"],
    }
    assert held[f"{hex_digest}.tar"] == layer.tar.read_bytes()
    assert json.loads(held[manifest["Config"]]) == {
        "architecture": "amd64",
        "os": "linux",
        "created": "2026-01-01T00:00:00Z",
        "config": {
            "User": "7:8",
            "Env": ["A=1", "B=2"],
            "Entrypoint": ["/bin/run"],
            "Cmd": ["x", "y"],
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
        "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "triton-fleet 1"}],
    }


# ensure and export


def test_an_unchanged_image_is_not_made_again(shop: Workshop) -> None:
    said: list[str] = []
    first = build.ensure(shop.cache, [COREDNS], said.append, shop.binaries)
    spoken, written = len(said), first[0].archive.stat().st_mtime_ns
    assert build.ensure(shop.cache, [COREDNS], said.append, shop.binaries) == first
    assert (len(said), first[0].archive.stat().st_mtime_ns) == (spoken, written)
    _other("coredns")(shop)
    [second] = build.ensure(shop.cache, [COREDNS], said.append, shop.binaries)
    assert second.key != first[0].key
    assert second.archive.is_file()


def test_what_a_killed_build_left_is_removed(shop: Workshop) -> None:
    half = shop.cache / "layers" / ".debian-x" / "tree"
    half.mkdir(parents=True)
    (shop.cache / "images").mkdir()
    (shop.cache / "images" / ".coredns-0.tar.partial").touch()
    [image] = build.ensure(shop.cache, [COREDNS], print, shop.binaries)
    assert list((shop.cache / "images").iterdir()) == [image.archive]
    assert [path.name for path in (shop.cache / "layers").iterdir() if path.name.startswith(".")] == []


def test_export_writes_archives_under_stable_names_with_an_index(shop: Workshop, tmp_path: Path) -> None:
    programs = {"coredns": shop.binaries["coredns"], "pause": shop.binaries["coredns"]}
    folder = tmp_path / "out"
    for _ in range(2):
        index = build.export(folder, shop.cache, print, programs, wanted=[PAUSE, COREDNS])
    assert sorted(path.name for path in folder.iterdir()) == ["coredns.tar", "index.json", "pause.tar"]
    assert index == folder / "index.json"
    assert json.loads(index.read_text()) == [
        {
            "ref": image.ref,
            "archive": f"{name}.tar",
            "key": image.key,
            "bytes": image.archive.stat().st_size,
            "sha256": hashlib.sha256((folder / f"{name}.tar").read_bytes()).hexdigest(),
        }
        for name, image in zip(
            ("pause", "coredns"), build.ensure(shop.cache, [PAUSE, COREDNS], print, programs), strict=True
        )
    ]


@pytest.mark.parametrize(
    ("wanted", "programs", "message"),
    [
        (
            ["example.local/other:1"],
            {},
            (
                "no recipe makes the image example.local/other:1\n"
                f"fix: name one of: {', '.join(recipe.ref for recipe in RECIPES)}"
            ),
        ),
        (
            [COREDNS],
            {},
            """\
the image of coredns needs the program coredns, which was not given
fix: build it first (local/tools), or leave the image of coredns out""",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(
    tmp_path: Path, wanted: list[str], programs: dict[str, Path], message: str
) -> None:
    with pytest.raises(LocalError) as refused:
        build.ensure(tmp_path, wanted, print, programs)
    assert str(refused.value) == message


# Packages

A_HASH, B_HASH = "a" * 64, "b" * 64


def test_a_lock_is_read_as_uv_writes_it(tmp_path: Path) -> None:
    lock = tmp_path / "x.txt"
    lock.write_text(
        "# by uv\n"
        f"some-name==1.2.post1 \\\n    --hash=sha256:{A_HASH} \\\n    --hash=sha256:{B_HASH}\n    # via -r x.in\n"
        f"other==3 \\\n    --hash=sha256:{B_HASH}\n"
    )
    assert wheels.pins(lock) == [
        Pin("some-name", "1.2.post1", frozenset({A_HASH, B_HASH})),
        Pin("other", "3", frozenset({B_HASH})),
    ]


@pytest.mark.parametrize("line", ["numpy", "numpy>=1", "numpy==1.0", "--extra-index-url x", "numpy==1 --hash=md5:0"])
def test_a_line_without_version_and_hash_is_refused(tmp_path: Path, line: str) -> None:
    lock = tmp_path / "x.txt"
    lock.write_text(f"{line}\n")
    with pytest.raises(LocalError) as refused:
        wheels.pins(lock)
    assert str(refused.value) == (
        f"x.txt has a line that is not a version pinned by hash: {line}\n"
        "fix: renew the lock as local/images/README.md says"
    )


@pytest.mark.parametrize("name", sorted(path.name for path in build.HERE.glob("*.txt")))
def test_the_locks_pin_what_their_sources_ask_for(name: str) -> None:
    asked = [
        line.partition("[")[0].partition("=")[0].partition("<")[0]
        for line in (build.HERE / name).with_suffix(".in").read_text().split("\n")
        if line and not line.startswith("#")
    ]
    assert set(asked) <= {pin.name for pin in wheels.pins(build.HERE / name)}


def _wheel(folder: Path, files: dict[str, bytes], executable: str = "") -> Path:
    path = folder / "Some_Name-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as content:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if name == executable else 0o100644) << 16
            content.writestr(entry, data)
    return path


@pytest.mark.parametrize(
    ("name", "version", "locked", "found"),
    [
        ("some-name", "1.0", "its hash", "the wheel"),
        ("some.Name", "1.0", "its hash", "the wheel"),
        ("some-name", "1.0", "another", "nothing"),
        ("some-name", "1.1", "its hash", "nothing"),
        ("some", "1.0", "its hash", "nothing"),
    ],
)
def test_a_cached_wheel_counts_only_with_a_locked_hash(
    tmp_path: Path, name: str, version: str, locked: str, found: str
) -> None:
    wheel = _wheel(tmp_path, {"some/__init__.py": b""})
    pin = Pin(name, version, frozenset({A_HASH, file_digest(wheel) if locked == "its hash" else B_HASH}))
    assert wheels.cached(pin, tmp_path) == (wheel if found == "the wheel" else None)


def test_packages_are_unpacked_where_the_image_has_them(tmp_path: Path) -> None:
    wheel = _wheel(
        tmp_path,
        {
            "some/__init__.py": b"a = 1\n",
            "some/tests/test_a.py": b"",
            "some/bin/server": b"\x7fELF",
            "some/lib/libkept.so": b"1",
            "some/lib/libpython3.so": b"2",
            "Some_Name-1.0.data/purelib/extra.py": b"b = 2\n",
            "Some_Name-1.0.data/scripts/some": b"#!python\n",
            "../outside.py": b"",
        },
        executable="some/bin/server",
    )
    site, tree = tmp_path / "site", tmp_path / "tree"
    wheels.unpack(wheel, site)
    wheels.place(
        site,
        tree,
        (
            Placement("some/bin/server", "opt/server/run"),
            Placement("some/lib", "opt/server/lib", drop=("libpython*",)),
            Placement(".", "site", drop=("tests", "bin", "lib")),
        ),
    )
    held = {
        path.relative_to(tree).as_posix(): oct(stat.S_IMODE(path.stat().st_mode))
        for path in tree.rglob("*")
        if path.is_file()
    }
    assert held == {
        "opt/server/run": "0o755",
        "opt/server/lib/libkept.so": "0o644",
        "site/some/__init__.py": "0o644",
        "site/extra.py": "0o644",
        "site/__pycache__/extra.cpython-311.pyc": "0o644",
        "site/some/__pycache__/__init__.cpython-311.pyc": "0o644",
    }
    assert not (tmp_path / "outside.py").exists()
    compiled = (tree / "site/__pycache__/extra.cpython-311.pyc").read_bytes()
    assert compiled[4:8] == b"\x01\0\0\0", "tied to its source's content, without a check at each start"
    assert str(tmp_path).encode() not in compiled


# The base

TARGETS = """\
bookworm-updates main http://a.example/debian
bookworm contrib http://a.example/debian
bookworm main http://a.example/debian
bookworm-security main http://a.example/debian-security
bookworm main http://b.example/debian
"""


@pytest.mark.parametrize(
    ("targets", "suite", "site"),
    [
        (TARGETS, "bookworm", "http://a.example/debian"),
        (TARGETS, "bookworm-security", "http://a.example/debian-security"),
        (TARGETS, "trixie", None),
        ("", "bookworm", None),
    ],
)
def test_the_mirror_is_the_one_that_apt_uses(targets: str, suite: str, site: str | None) -> None:
    assert debian.site_of(targets, suite) == site


def test_a_base_carries_nothing_of_the_building_machine(tmp_path: Path) -> None:
    for name in (*debian.EMPTIED, "var/lib/apt/lists", "usr/share/man/man1", "usr/share/doc/a/examples", "etc/apt"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    for name in (
        "etc/hostname",
        "etc/passwd",
        "etc/resolv.conf",
        "etc/apt/sources.list",
        "tmp/left",
        "usr/share/doc/a/copyright",
        "usr/share/doc/a/changelog.gz",
        "usr/share/doc/a/examples/one",
        "usr/share/man/man1/a.1",
        "var/cache/apt.bin",
        "var/lib/apt/lists/index",
        "var/lib/dpkg-status",
        "var/log/dpkg.log",
    ):
        (tmp_path / name).touch()
    (tmp_path / "usr/share/doc/b").symlink_to("a")
    (tmp_path / "run/lock").symlink_to("/nowhere")
    debian.trim(tmp_path)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if not path.is_dir()}
    assert left == {"etc/passwd", "usr/share/doc/a/copyright", "var/lib/dpkg-status"}
    assert all((tmp_path / name).is_dir() for name in debian.EMPTIED)
