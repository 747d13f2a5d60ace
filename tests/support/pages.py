"""Parse HTML pages, so that tests check their structure."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree.ElementTree import Element, TreeBuilder

VOID = {"meta", "link", "img", "br", "input"}


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.builder = TreeBuilder()
        self.builder.start("page", {})

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.builder.start(tag, {name: value or "" for name, value in attributes})
        if tag in VOID:
            self.builder.end(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.builder.start(tag, {name: value or "" for name, value in attributes})
        self.builder.end(tag)

    def handle_endtag(self, tag: str) -> None:
        self.builder.end(tag)

    def handle_data(self, data: str) -> None:
        self.builder.data(data)


def parse_page(html: str) -> Element:
    """Return the root element of a page. Unbalanced tags are an error."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    parser.builder.end("page")
    return parser.builder.close()


def text(element: Element | None) -> str:
    """Return the text of an element and its descendants, with single spaces."""
    assert element is not None
    return " ".join(" ".join(element.itertext()).split())


def by_class(root: Element, name: str) -> list[Element]:
    """Return the elements with a CSS class."""
    return [element for element in root.iter() if name in element.get("class", "").split()]


def by_id(root: Element, name: str) -> Element:
    (element,) = (element for element in root.iter() if element.get("id") == name)
    return element


def section(root: Element, title: str) -> Element:
    """Return the section whose heading starts with `title`."""
    (found,) = (s for s in root.iter("section") if text(s.find("h2")).startswith(title))
    return found


def table_rows(table: Element) -> list[list[str]]:
    """Return the texts of all cells, by row."""
    return [[text(cell) for cell in row if cell.tag in ("th", "td")] for row in table.iter("tr")]
