"""Create the environment of a peer in .peers/NAME: python benchmarks/peers/setup.py pfl|fedjax|flower [...]

Each peer has its own environment, because their requirements conflict. The versions in NAME/requirements.txt
were resolved for Python 3.11 (JAX 0.4.25 supports 3.9 to 3.12).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEERS = ("pfl", "fedjax", "flower")


def create_environment(peer: str, python: str) -> None:
    """Create a new environment with the pinned packages. Remove it if that fails."""
    target = ROOT / ".peers" / peer
    if target.exists():
        shutil.rmtree(target)
    try:
        subprocess.run([python, "-m", "venv", str(target)], check=True)
        subprocess.run(
            [
                *(str(target / "bin" / "python"), "-m", "pip", "install", "--quiet"),
                *("--disable-pip-version-check", "-c", str(HERE / "constraints.txt")),
                *("-r", str(HERE / peer / "requirements.txt")),
            ],
            check=True,
        )
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    print(f"{peer}: ready in {target.relative_to(ROOT)}; python -m benchmarks.speed --against {peer}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", nargs="+", choices=PEERS, metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--python", default=sys.executable, help="Python interpreter of the environment")
    arguments = parser.parse_args()
    for peer in arguments.peers:
        try:
            create_environment(peer, arguments.python)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{peer}: the environment was not created: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
