"""Make the screenshots of docs/pages.md: a comparison, a sweep and a reproduction at three widths.

    make screenshots

The runs take some minutes. They are kept in `screenshots-runs/`, and finished ones are not repeated.
"""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from chromium import HOW_TO_INSTALL, find_programs, start_browser
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "screenshots-runs"
WIDTHS = (1440, 900, 390)
HEIGHT = 2200  # longer pages are cut
COLOURS = 96  # of the palette, so that files stay small
EXECUTOR = ["--executor", "vectorised"]  # a small task, so the runs take a minute
SETTINGS = "client.steps=10 clients_per_round=30"
ALGORITHMS = "fedavg,fedavgm,fedadagrad,fedadam,fedyogi"
GRID = "client_lr=-2:0:1, server_lr=-1:0.5:0.5, tau=-3|-2"
PAGES = {  # name: arguments of the command, settings, and its page
    "comparison": (
        [
            "compare",
            "synthetic_lr",
            "--algorithms",
            ALGORITHMS,
            "--rounds",
            "100",
            "--seeds",
            "0:3",
            *EXECUTOR,
        ],
        f"{SETTINGS} eval.every=5 eval.last_every=5",
        "report.html",
    ),
    "sweep": (
        [
            "sweep",
            "synthetic_lr",
            "--algorithm",
            "fedavg,fedadam",
            "--grid",
            GRID,
            "--rounds",
            "20",
            *EXECUTOR,
        ],
        SETTINGS,
        "report.html",
    ),
    "reproduction": (
        ["reproduce", "all", "--scale", "smoke", "--tasks", "emnist_cr", "--data", "synthetic"],
        "",
        "index.html",
    ),
}


def make_page(name: str) -> Path:
    """Run a command and return its page."""
    arguments, settings, page = PAGES[name]
    options = [word for setting in settings.split() for word in ("--set", setting)]
    command = [sys.executable, "-m", "fedopt", *arguments, *options, "--out", f"screenshots-runs/{name}"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return RUNS / name / page


def capture(browser: Any, page: Path, width: int) -> Image.Image:
    """Return the upper part of a page as an image."""
    metrics = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return Image.open(io.BytesIO(base64.b64decode(shot["data"])))


def main() -> None:
    programs = find_programs()
    if programs is None:
        raise SystemExit(HOW_TO_INSTALL)
    directory = ROOT / "docs" / "screenshots"
    directory.mkdir(exist_ok=True)
    pages = {name: make_page(name) for name in PAGES}
    with tempfile.TemporaryDirectory() as profile:
        browser = start_browser(programs, Path(profile))
        try:
            for name, page in pages.items():
                for width in WIDTHS:
                    image = capture(browser, page, width).convert("RGB").quantize(COLOURS, kmeans=3)
                    image.save(directory / f"{name}-{width}.png", optimize=True)
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
