"""HTML templates: escaping, undefined names and JSON data."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from fedopt.reports.page import render_template


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with one template."""
    templates = tmp_path / "pagepackage" / "templates"
    templates.mkdir(parents=True)
    (tmp_path / "pagepackage" / "__init__.py").write_text("")
    (templates / "text.html.j2").write_text("<p>{{ text | keep_units }}</p>\n")
    (templates / "data.html.j2").write_text("<script>{{ data | tojson }}</script>")
    monkeypatch.syspath_prepend(tmp_path)
    yield "pagepackage"
    sys.modules.pop("pagepackage", None)


def test_values_are_escaped_and_units_stay_with_their_number(package: str) -> None:
    page = render_template(package, "text.html.j2", text="<b> 5 ± 1 %")
    assert page == "<p>&lt;b&gt; 5\u00a0±\u00a01\u00a0%</p>\n"


def test_undefined_names_are_errors(package: str) -> None:
    with pytest.raises(UndefinedError):
        render_template(package, "text.html.j2")


def test_json_cannot_end_its_script_element(package: str) -> None:
    page = render_template(package, "data.html.j2", data={"b": "</script>", "a": 1})
    assert page == '<script>{"b": "\\u003c/script\\u003e", "a": 1}</script>'


def test_json_rejects_nan(package: str) -> None:
    with pytest.raises(ValueError):
        render_template(package, "data.html.j2", data=float("nan"))
