"""Makes the images of `recipes.py` as docker archives in the cache, only what changed; no registry, no daemon."""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from local.errors import LocalError
from local.images import archive
from local.images.recipes import RECIPES
from local.images.workshop import Workshop, digest, file_digest
from local.state import held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from local.images.recipes import Recipe
    from local.images.workshop import LayerKind

HERE = Path(__file__).resolve().parent
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
INDEX = "index.json"


@dataclass(frozen=True)
class Image:
    """An image and the docker archive it can be loaded from. `key` is a digest of what it was made from."""

    ref: str
    archive: Path
    key: str


def ensure(
    cache: Path,
    wanted: Sequence[str] | None,
    progress: Callable[[str], None],
    binaries: Mapping[str, Path],
) -> list[Image]:
    """The archives of the images named in `wanted` (all, if None), built where the cache lacks them.

    `binaries` holds static programs by name: `coredns` has to be there for its image; `pause` is compiled from its
    source here, with `binaries["go"]` or the go on PATH, unless it is given.
    """
    shop = Workshop(HERE, cache, binaries)
    recipes = RECIPES if wanted is None else [_recipe(ref) for ref in wanted]
    folder = cache / "images"
    images = []
    with _alone(cache):
        for recipe in recipes:
            key = image_key(recipe, shop)
            made = folder / f"{recipe.name}-{key}.tar"
            if not made.exists():
                layers = [_layer(layer, shop, progress) for layer in recipe.layers]
                check_size(recipe, layers)
                progress(f"image {recipe.ref}: writing its archive")
                archive.write_image(made, recipe.ref, layers, recipe.settings, _architecture())
            images.append(Image(recipe.ref, made, key))
    return images


def export(
    folder: Path,
    cache: Path,
    progress: Callable[[str], None],
    binaries: Mapping[str, Path],
    wanted: Sequence[str] | None = None,
) -> Path:
    """Copies the archives to a folder as `<name>.tar` and lists them in its `index.json`, whose path it returns."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for image in ensure(cache, wanted, progress, binaries):
        copy = folder / f"{_recipe(image.ref).name}.tar"
        partial = copy.with_name(f".{copy.name}.partial")
        shutil.copyfile(image.archive, partial)
        partial.replace(copy)
        progress(f"image {image.ref}: {copy}")
        listed.append(
            {
                "ref": image.ref,
                "archive": copy.name,
                "key": image.key,
                "bytes": copy.stat().st_size,
                "sha256": file_digest(copy),
            }
        )
    index = folder / INDEX
    index.write_text(json.dumps(listed, indent=2) + "\n")
    return index


def image_key(recipe: Recipe, shop: Workshop) -> str:
    """A digest of all that decides an image's content; equal keys mean that the archive need not be made again."""
    return digest(
        recipe.ref,
        [layer_key(layer, shop) for layer in recipe.layers],
        asdict(recipe.settings),
        recipe.max_bytes,
    )


def layer_key(layer: LayerKind, shop: Workshop) -> str:
    """A digest of all that decides a layer's content: its recipe, its locked inputs and the code that makes it."""
    return digest(
        type(layer).__name__,
        repr(layer),
        _architecture(),
        [file_digest(shop.folder / name) for name in layer.code],
        layer.inputs(shop),
    )


def check_size(recipe: Recipe, layers: Sequence[archive.Layer]) -> None:
    """Refuses an image whose files take more than its recipe allows."""
    got = sum(layer.unpacked_bytes for layer in layers)
    if recipe.max_bytes is not None and got >= recipe.max_bytes:
        sizes = ", ".join(f"{layer.tar.stem.rpartition('-')[0]} {_mib(layer.unpacked_bytes)}" for layer in layers)
        raise LocalError(
            f"image {recipe.ref} is too big",
            details=f"   got:   {_mib(got)} unpacked ({sizes})\n"
            f"   limit: less than {_mib(recipe.max_bytes)}\n"
            f"   why:   each simulated node keeps an unpacked copy on the same disk",
            fix="leave out of the biggest layer what serving does not read: its placements in local/images/recipes.py",
        )


def _layer(layer: LayerKind, shop: Workshop, progress: Callable[[str], None]) -> archive.Layer:
    folder = shop.cache / "layers"
    tar = folder / f"{layer.name}-{layer_key(layer, shop)}.tar"
    made = archive.recall(tar)
    if made is None:
        progress(f"layer {layer.name}: making it")
        started_s = time.monotonic()
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{layer.name}-") as scratch:
            made = layer.make(shop, Path(scratch), tar)
        archive.remember(made)
        progress(f"layer {layer.name}: {_mib(made.unpacked_bytes)} in {time.monotonic() - started_s:.0f} s")
    return made


def _recipe(ref: str) -> Recipe:
    for recipe in RECIPES:
        if recipe.ref == ref:
            return recipe
    raise LocalError(
        f"no recipe makes the image {ref}",
        fix=f"name one of: {', '.join(recipe.ref for recipe in RECIPES)}",
    )


@contextlib.contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """One build at a time in a cache, whichever checkout asks; what a killed one left half done is removed."""
    folders = [cache / name for name in ("images", "layers")]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    with held(cache / "images.lock"):
        for leftover in (path for folder in folders for path in folder.glob(".*")):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()
        yield


def _architecture() -> str:
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise LocalError(
            f"no image can be made for a machine of kind {machine}",
            fix=f"use one of kind {' or '.join(ARCHITECTURES)}: Triton's wheel is for these",
        )
    return ARCHITECTURES[machine]


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
