#!/bin/sh
# The virtual environment .venv with exactly what uv.lock says. uv itself is one of its locked packages.
set -eu
python=${PYTHON:-python3}

if [ ! -x .venv/bin/uv ]; then # also after a set-up that was interrupted
    version=$(sed -n '/^name = "uv"$/{n;s/^version = "\(.*\)"$/\1/p;}' uv.lock)
    echo "setup: making .venv with $("$python" --version) and uv $version"
    "$python" -m venv --clear .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$version"
fi
echo "setup: installing the packages of uv.lock into .venv"
# byte-compiled once here, not by every process: some environments do not allow Python to write .pyc files
UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1 \
    .venv/bin/uv sync --quiet --frozen --all-packages --python .venv/bin/python
