"""HTML pages from Jinja2 templates. Everything that is inserted is escaped."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render_template(package: str, template: str, **values: Any) -> str:
    """Render a file from the `templates` directory of `package`; an undefined name is an error."""
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)
