"""Make a peer's environment in .peers/NAME: python benchmarks/peers/setup.py pfl|fedjax|flower [...]

Each has its own, because their requirements exclude each other. Python 3.11 is what the versions in
NAME/requirements.txt were resolved for (JAX 0.4.25 exists for 3.9 to 3.12).
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


def set_up(peer: str, python: str) -> None:
    """A fresh environment with exactly the pinned packages; nothing is left behind if that fails."""
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
    print(f"{peer}: ready in {target.relative_to(ROOT)}; fedopt bench --against {peer}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", nargs="+", choices=PEERS, metavar="PEER", help=", ".join(PEERS))
    parser.add_argument(
        "--python", default=sys.executable, help="the Python that the environment is made with"
    )
    arguments = parser.parse_args()
    for peer in arguments.peers:
        try:
            set_up(peer, arguments.python)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{peer}: not set up: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
