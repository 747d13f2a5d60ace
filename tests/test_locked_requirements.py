"""requirements-hashes.txt agrees with constraints.txt and pyproject.toml. `make lock` writes it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([\w.+!]+)", re.MULTILINE)


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> dict[str, str]:
    """Return the version of each package, without a local part such as "+cpu"."""
    found = PIN.findall((ROOT / file).read_text())
    return {normalized(name): version.partition("+")[0] for name, version in found}


def test_locked_versions_are_those_of_the_constraints() -> None:
    locked, allowed = pins("requirements-hashes.txt"), pins("constraints.txt")
    assert locked and locked == {name: allowed.get(name) for name in locked}


def test_every_direct_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {normalized(re.split(r"[<>=!~\[; ]", requirement)[0]) for requirement in direct}
    assert names <= set(pins("requirements-hashes.txt"))


def test_every_locked_package_has_a_hash() -> None:
    blocks = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / "requirements-hashes.txt").read_text())
    packages = [block for block in blocks if PIN.match(block)]
    assert len(packages) == len(pins("requirements-hashes.txt"))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in packages)
