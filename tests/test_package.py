"""The wheel and the source distribution that `make dist` builds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from wheel_environment import Distributions, WheelEnvironment, build, unpack

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
TYPE_CACHE = ROOT / ".mypy_cache"
USER_PROJECT = ROOT / "tests" / "support" / "user_types.py"
PRINT_FILES = """
import sys, fedopt.cli.app
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
print(*(f"{name}={file}" for name, file in files.items() if file))
"""

pytestmark = pytest.mark.xdist_group("package")  # one build for all tests


def contents(wheel: Path) -> dict[str, int]:
    """Return the files of a wheel with their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def test_wheel_has_all_files_of_the_package_and_no_others(distributions: Distributions) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "fedopt", "fedopt_paper"],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        check=True,
    )
    metadata = [f"fedopt-{VERSION}.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD")]
    metadata += [f"fedopt-{VERSION}.dist-info/{name}" for name in ("entry_points.txt", "licenses/LICENSE")]
    files = set(contents(distributions.wheel))
    assert files == {*filter(lambda name: (SOURCE / name).is_file(), listed.stdout.split()), *metadata}
    assert {"fedopt/py.typed", "fedopt/reports/templates/style.css", "fedopt_paper/py.typed"} <= files


def test_source_distribution_builds_the_same_wheel(distributions: Distributions, tmp_path: Path) -> None:
    (from_tree,) = build(ROOT, tmp_path / "tree", "--wheel")
    assert contents(from_tree) == contents(distributions.wheel)
    source = unpack(distributions.sdist, tmp_path)
    assert {"LICENSE", "README.md", "CHANGELOG.md", "constraints.txt"} <= {p.name for p in source.iterdir()}


def test_installed_package_is_the_wheel(wheel_environment: WheelEnvironment, tmp_path: Path) -> None:
    done = wheel_environment.run("fedopt", "--version", cwd=tmp_path)
    assert (done.stdout.split()[-1], done.stderr) == (VERSION, "")
    printed = wheel_environment.run(wheel_environment.python, "-c", PRINT_FILES, cwd=tmp_path).stdout.split()
    files = [line.partition("=")[2] for line in printed]
    ours = [line.partition("=")[2] for line in printed if line.split(".")[0] == "fedopt"]
    assert len(ours) > 15
    assert all(Path(file).is_relative_to(wheel_environment.packages) for file in ours)
    assert not [file for file in files if Path(file).is_relative_to(SOURCE)]


def test_python_of_the_readme_runs(wheel_environment: WheelEnvironment, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "readme.py").write_text(code)
    done = wheel_environment.run(wheel_environment.python, "-W", "error", "readme.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    accuracy = re.fullmatch(r"test accuracy (\d\.\d+)\n", done.stdout)
    assert accuracy and float(accuracy.group(1)) > 0.9  # a linear model has 0.5


def test_command_writes_a_report(wheel_environment: WheelEnvironment, tmp_path: Path) -> None:
    """The templates of pages are in the wheel."""
    words = [
        "--algorithms",
        "fedavg,fedyogi",
        "--rounds",
        "1",
        "--set",
        "clients_per_round=2",
        "--executor",
        "serial",
    ]
    done = wheel_environment.run("fedopt", "compare", "synthetic_lr", *words, "--out", "runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "<title>2 federated optimizers" in (tmp_path / "runs" / "report.html").read_text()


def test_command_of_the_paper_is_an_entry_point(wheel_environment: WheelEnvironment, tmp_path: Path) -> None:
    words = ["reproduce", "labels", "--scale", "smoke", "--data", "synthetic", "--out", "made"]
    done = wheel_environment.run("fedopt", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made" / "labels" / "numbers.csv").is_file()
    assert "reproduce" in wheel_environment.run("fedopt", "--help", cwd=tmp_path).stdout


def test_version_is_the_same_in_all_files() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [VERSION]
    changelog = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert VERSION in changelog[:2]  # the first may be Unreleased


@pytest.fixture(scope="module")
def type_check() -> subprocess.CompletedProcess[str]:
    """The result of the type checker for this package, as `make check` runs it."""
    command = [sys.executable, "-m", "mypy", "--cache-dir", TYPE_CACHE]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_package_passes_the_type_checker(type_check: subprocess.CompletedProcess[str]) -> None:
    assert type_check.returncode == 0, type_check.stdout + type_check.stderr


@pytest.mark.usefixtures("type_check")  # its cache has the types of torch
def test_project_of_a_user_has_exact_types(wheel_environment: WheelEnvironment, tmp_path: Path) -> None:
    """The project uses `assert_type`, which rejects Any."""
    cache = shutil.copytree(TYPE_CACHE, tmp_path / "cache")
    options = ["--strict", "--config-file", ROOT / "pyproject.toml", "--cache-dir", cache]
    command = [sys.executable, "-m", "mypy", *options, "--python-executable", wheel_environment.python]
    done = wheel_environment.run(*command, USER_PROJECT, cwd=tmp_path, timeout=600)
    assert done.stdout == "Success: no issues found in 1 source file\n", done.stdout + done.stderr


@pytest.mark.slow  # installs all dependencies, minutes
def test_wheel_and_its_dependencies_install_into_an_empty_environment(
    distributions: Distributions, tmp_path: Path
) -> None:
    environment = WheelEnvironment(tmp_path / "venv")
    subprocess.run([sys.executable, "-m", "venv", environment.directory], check=True)
    install = ["-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", distributions.wheel]
    done = environment.run(environment.python, *install, cwd=tmp_path, timeout=1800)
    assert done.returncode == 0, done.stderr
    done = environment.run(environment.python, "-m", "pip", "check", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    test_python_of_the_readme_runs(environment, tmp_path)
    test_command_writes_a_report(environment, tmp_path)
    test_command_of_the_paper_is_an_entry_point(environment, tmp_path)
