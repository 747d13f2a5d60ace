#!/bin/sh
# Write requirements-hashes.txt: the packages of `make test` with the checksums of their files.
# Usage: make lock. The versions are those of constraints.txt.
set -eu
python=$1
cd "$(dirname "$0")/.."
# uv does not read the configuration of pip, which may name a directory with the CPU build of torch.
UV_FIND_LINKS=$("$python" -m pip config get global.find-links 2> /dev/null | xargs | tr ' ' ',') || true
export UV_FIND_LINKS
{
    cat <<'HEADER'
# The packages of `make test` with checksums, for Linux and Python 3.11. Written by `make lock`; run it after every
# change of pyproject.toml or constraints.txt. `make LOCKED=1 test` installs exactly these files in a new .venv.
# torch is the CPU build, which pip finds only with a link to PyTorch's wheels for CPUs.
HEADER
    "$python" -m uv pip compile --quiet --no-header --no-annotate --generate-hashes --python-version 3.11 \
        --python-platform linux --index-strategy unsafe-best-match --no-emit-index-url --no-emit-find-links \
        --extra dev --extra locked --constraint constraints.txt pyproject.toml
} > requirements-hashes.txt.new
mv requirements-hashes.txt.new requirements-hashes.txt
echo "requirements-hashes.txt: $(grep -c '^[A-Za-z0-9].*==' requirements-hashes.txt) packages"
