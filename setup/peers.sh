#!/bin/sh
# Makes .venv-peers, the environment of what the benchmarks compare Burnish with. The product never uses it.
# Usage: peers.sh PYTHON
set -eu
python=${1:-python3}

command -v "$python" >/dev/null 2>&1 || {
    echo "burnish: $python was not found; name a Python 3.11 or newer:" >&2
    echo "  sh setup/peers.sh python3.11" >&2
    exit 1
}
[ -x .venv-peers/bin/python ] || "$python" -m venv .venv-peers
pip=".venv-peers/bin/python -m pip install --disable-pip-version-check --quiet"

echo "burnish: installing the peers into .venv-peers"
# The same torch as Burnish's own, so that a difference in speed is not one of torch versions.
.venv-peers/bin/python -c 'import torch; assert torch.__version__.startswith("2.13.")' 2>/dev/null ||
    $pip 'torch==2.13.0'
$pip 'trl==1.16.0' 'transformers>=5,<6' datasets accelerate
.venv-peers/bin/python -c 'import trl, torch; print("burnish: trl", trl.__version__, "with torch", torch.__version__)'
