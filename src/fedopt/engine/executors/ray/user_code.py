"""Send the user's modules to the nodes of a cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import fedopt

_NOT_SENT = [".git", ".venv", "venv", "runs", "reproduction", "__pycache__"]


def runtime_env() -> dict[str, Any]:
    """Return Ray's description of the user's code: the directory of the modules that this program imported.

    It is the current directory, or else that of the script. Ray leaves out files that .gitignore names.
    """
    for directory in (os.getcwd(), sys.path[0]):
        if directory and _has_user_modules(Path(directory).resolve()):
            return {"working_dir": directory, "excludes": _NOT_SENT}
    return {}


def _has_user_modules(directory: Path) -> bool:
    installed = (Path(sys.prefix).resolve(), Path(fedopt.__file__).resolve().parent)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name in ("__main__", "__mp_main__"):  # its functions are sent by value
            continue
        path = Path(file).resolve()
        is_inside = path.is_relative_to(directory) and path.is_file()  # torch.ops names a file "_ops.py"
        if is_inside and not any(path.is_relative_to(other) for other in installed):
            return True
    return False
