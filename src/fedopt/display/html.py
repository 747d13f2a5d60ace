"""Render HTML pages from Jinja2 templates. Inserted values are escaped automatically."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render_template(package: str, template: str, **values: Any) -> str:
    """Render a file from the `templates` directory of `package`. Undefined names are errors."""
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["keep_units"] = keep_units
    environment.filters["keep_numbers"] = keep_numbers
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}  # NaN is not valid in JSON
    return environment.get_template(template).render(**values)


def keep_units(text: str) -> str:
    """Prevent line breaks between a number and its percent sign or half-width.

    >>> keep_units("50.0 ± 1.2 %")
    '50.0\\xa0±\\xa01.2\\xa0%'
    """
    return text.replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0")


def keep_numbers(text: str) -> str:
    """Prevent line breaks beside numbers, except before a half-width and before a parenthesis.

    >>> keep_numbers("16.0 ± 5.0 % (2 of 3 seeds)")
    '16.0 ±\\xa05.0\\xa0% (2\\xa0of\\xa03\\xa0seeds)'
    """
    kept = re.sub(r"(?<=[\d%]) | (?=[\d%])", "\u00a0", text)
    return kept.replace("\u00a0±", " ±").replace("\u00a0(", " (")
