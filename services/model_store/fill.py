"""Copies one content of a model into the store. Runs in a Job, from a ConfigMap, with nothing but Python's own library.

The content appears at its place whole or not at all: it is copied under another name, checked against its digest, and
renamed. A second run finds it there and changes nothing; content that somebody altered is put right.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import time
from pathlib import Path

STALE_S = 3600
"""Age in seconds at which what an interrupted run left behind is removed; a run lasts a few seconds."""


def tree_digest(folder: Path) -> str:
    """The digest that fleet.model_repository.digest gives the same files; a folder that is not there holds none."""
    total = hashlib.sha256()
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name in sorted(files):
        content = files[name].read_bytes()
        total.update(f"{len(name.encode())}:{name}:{len(content)}:".encode())
        total.update(content)
    return total.hexdigest()


def source_files(source: Path) -> list[Path]:
    """The files of a mounted ConfigMap, without the kubelet's own bookkeeping beside them (`..data` and the like)."""
    found = []
    for top in sorted(source.iterdir()):
        if top.name.startswith(".."):
            continue
        found += [path for path in sorted(top.rglob("*")) if path.is_file()] if top.is_dir() else [top]
    return found


def remove_stale(parent: Path, now: float) -> None:
    """Removes what interrupted runs left."""
    for left in parent.glob(".filling-*"):
        if now - left.stat().st_mtime > STALE_S:
            shutil.rmtree(left, ignore_errors=True)


def sync(folder: Path) -> None:
    """Makes sure that a folder's files are on the disk before their name says so."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def fill(source: Path, target: Path, model: str, digest: str) -> str:
    """Puts the content at `<target>/<model>`, for Triton to use `target` as a repository; says what it did."""
    parent = target.parent
    if target.is_dir() and tree_digest(target / model) == digest:
        return f"{target} holds this content already"
    parent.mkdir(parents=True, exist_ok=True)
    remove_stale(parent, time.time())
    filling = parent / f".filling-{target.name}-{os.uname().nodename}-{os.getpid()}"
    files = source_files(source)
    for path in files:
        copy = filling / model / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    got = tree_digest(filling / model)
    if got != digest:
        shutil.rmtree(filling, ignore_errors=True)
        raise SystemExit(f"the files in {source} have digest {got}, not {digest}: their ConfigMap is not the one meant")
    sync(filling)
    did = "holds"
    if target.exists():
        target.rename(parent / f".filling-replaced-{target.name}-{os.uname().nodename}-{os.getpid()}")
        did = "was altered by somebody and holds again"
    try:
        filling.rename(target)
    except OSError:
        if tree_digest(target / model) != digest:
            raise
        shutil.rmtree(filling, ignore_errors=True)
    return f"{target} {did} {len(files)} files"


def main() -> int:
    """The command line of the Job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--digest", required=True)
    args = parser.parse_args()
    try:
        print(fill(args.source, args.target, args.model, args.digest), flush=True)
    except PermissionError as error:
        print(
            f"the store cannot be written: {error}\n"
            f"got:   a folder that user {os.getuid()}, group {os.getgid()} may not write to\n"
            f"fix:   on the node, give the store's folder to them: chown {os.getuid()}:{os.getgid()} <store.path>",
            file=sys.stderr,
            flush=True,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
