"""Build the wheel and install it into new virtual environments."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Distributions(NamedTuple):
    """The files that `make dist` builds."""

    wheel: Path
    sdist: Path


class WheelEnvironment(NamedTuple):
    """A virtual environment with the wheel of this package."""

    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    @property
    def packages(self) -> Path:
        """The directory of the installed packages."""
        return self.directory / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"

    def run(self, *words: str | Path, cwd: Path, timeout: int = 120) -> subprocess.CompletedProcess[str]:
        """Run a command in the environment, without the variables that change Python's search path."""
        removed = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        variables = {key: value for key, value in os.environ.items() if key not in removed}
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            list(map(str, words)),
            cwd=cwd,
            env={**variables, "PATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=timeout,
        )


def run_python(*words: str | Path, cwd: Path = ROOT) -> None:
    """Run a module of the environment of the tests. Its output is shown if it fails."""
    done = subprocess.run([sys.executable, "-m", *map(str, words)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def build(source: Path, out: Path, *options: str) -> list[Path]:
    """Build distributions of a source tree with the packages that are installed."""
    run_python("build", "--no-isolation", *options, "--outdir", out, source)
    return sorted(out.iterdir())


def unpack(sdist: Path, directory: Path) -> Path:
    """Unpack a source distribution and return its directory."""
    with tarfile.open(sdist) as archive:
        archive.extractall(directory, filter="data")
    return directory / sdist.name.removesuffix(".tar.gz")


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Wheel and source distribution of this source tree. The wheel is built from the source distribution."""
    wheel, sdist = build(ROOT, tmp_path_factory.mktemp("dist"))
    return Distributions(wheel, sdist)


@pytest.fixture(scope="session")
def wheel_environment(
    distributions: Distributions, tmp_path_factory: pytest.TempPathFactory
) -> WheelEnvironment:
    """An environment with the wheel, and the dependencies of the environment of the tests.

    A .pth file adds the directory of the dependencies after that of the wheel. Python does not read the .pth
    files in the added directory, so an editable installation of this package has no effect.
    """
    environment = WheelEnvironment(tmp_path_factory.mktemp("environment") / "venv")
    run_python("venv", "--without-pip", environment.directory)
    (environment.packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ["pip", "--python", environment.python, "install", "--quiet", "--no-deps", "--no-index"]
    run_python(*install, "--force-reinstall", distributions.wheel)
    return environment
