"""The command `fedopt new`: create a small project with a task, an algorithm and a test."""

from __future__ import annotations

import importlib.util
import keyword
import re
import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from fedopt.errors import UserError

# File of the project -> its template; PACKAGE is the name of the package.
FILES = {
    "README.md": "README.md.txt",
    "PACKAGE/__init__.py": None,
    "PACKAGE/tasks.py": "tasks.py.txt",
    "PACKAGE/algorithms.py": "algorithms.py.txt",
    "test_project.py": "test_project.py.txt",
}


def new(
    directory: Annotated[
        Path, typer.Argument(help="A directory that is empty or does not exist.", metavar="DIR")
    ],
) -> None:
    """Create a small project in DIR: a task, an algorithm (FedDyn), a test and a README with commands."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UserError(f"{directory} exists and is not an empty directory; choose another one")
    package = package_name(directory.resolve().name)
    if importlib.util.find_spec(package) is not None:
        raise UserError(
            f"Python already has a module named {package}, which the project would hide; choose another name"
        )
    templates = resources.files("fedopt.cli") / "project"
    for name, template in FILES.items():
        file = directory / name.replace("PACKAGE", package)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "" if template is None else (templates / template).read_text()
        file.write_text(text.replace("PACKAGE", package))
    typer.echo(
        f"created {directory}; next: cd {shlex.quote(str(directory))} && fedopt run {package}.tasks:spirals "
        "--rounds 3, then see README.md"
    )


def package_name(name: str) -> str:
    """Return a name as a Python package.

    >>> package_name("my-project"), package_name("2nd try"), package_name("class")
    ('my_project', 'project_2nd_try', 'class_')
    """
    package = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_") or "project"
    package = package if package[0].isalpha() else f"project_{package}"
    return f"{package}_" if keyword.iskeyword(package) else package
