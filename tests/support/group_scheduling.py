"""Send all tests with the same `xdist_group` mark to one process, so that expensive fixtures are made once.

`--dist loadgroup` of pytest-xdist 3.8 does nothing with pytest 9.2: it appends the group to an attribute of
the test that pytest no longer reads. This scheduler finds the marks in the source files instead.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
_MODULE = re.compile(r'^pytestmark = .*xdist_group\("([^"]+)"\)', re.MULTILINE)
_FUNCTION = re.compile(r'^@pytest\.mark\.xdist_group\("([^"]+)"\)\n(?:[^d].*\n)*?def (\w+)', re.MULTILINE)


@cache
def file_groups(name: str) -> tuple[str, dict[str, str]]:
    """Return the group of a test file, or "", and the groups of its functions."""
    file = ROOT / name
    text = file.read_text() if file.suffix == ".py" and file.is_file() else ""
    module = _MODULE.search(text)
    return module[1] if module else "", {function: group for group, function in _FUNCTION.findall(text)}


def group_of(nodeid: str) -> str:
    """Return the group of a test. A test without a mark is a group of its own."""
    name, _, test = nodeid.partition("::")
    of_file, of_functions = file_groups(name)
    return of_file or of_functions.get(test.partition("[")[0], nodeid)


@pytest.hookimpl(optionalhook=True)  # pytest works without xdist too
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler for `--dist loadscope` whose scopes are groups instead of modules."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return GroupScheduling(config, log)
