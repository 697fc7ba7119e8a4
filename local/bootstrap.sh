#!/bin/sh
# Makes the project's Python environment (.venv) from the hashed lock, or finds it made. Needs no more than a shell.
set -eu
cd "$(dirname "$0")/.."
lock=requirements/dev.txt
stamp=.venv/.installed-$(cksum <"$lock" | tr ' ' '-')
[ -e "$stamp" ] && .venv/bin/python -E -S -c '' 2>/dev/null && exit 0
theirs=$(if [ -e .venv ]; then echo .venv; else echo .; fi)
if ! [ -w . ] || ! [ -w "$theirs" ]; then
    echo "error: user $(id -un) cannot use this checkout: its Python environment, .venv, is $(stat -c %U "$theirs")'s" >&2
    echo "fix: run make as $(stat -c %U "$theirs"), or check the project out anew as $(id -un)" >&2
    exit 1
fi

fits() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
find_python() {
    for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14 /usr/bin/python3; do
        if fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
}

python=$(find_python)
if [ -z "$python" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "packages: installing with apt: python3 python3-venv"
    apt-get update --quiet=2
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 --no-install-recommends python3 python3-venv >/dev/null
    python=$(find_python)
fi
if [ -z "$python" ]; then
    echo "error: no Python 3.11 or newer with venv was found" >&2
    echo "fix: install one (Debian: apt-get install python3 python3-venv), or name it: make PYTHON=<path> ..." >&2
    exit 1
fi
echo "python: making .venv with $python"
rm -rf .venv
"$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$lock"
touch "$stamp"
