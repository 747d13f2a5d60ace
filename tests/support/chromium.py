"""Find and start a headless Chromium, for browser tests and for the screenshots of the documents."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
FLAGS += "disable-component-update disable-sync hide-scrollbars"
HOW_TO_INSTALL = (
    "Browser tests need Chromium and its driver. Debian: `make browser`, that is apt-get install chromium "
    "chromium-driver. Elsewhere: install Chromium or Chrome with the chromedriver of the same version, and "
    "set CHROMIUM and CHROMEDRIVER to the paths of both programs."
)


class BrowserPrograms(NamedTuple):
    browser: str
    driver: str


def find_programs() -> BrowserPrograms | None:
    """Return the programs from CHROMIUM and CHROMEDRIVER or from PATH, None if one is missing."""
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
    return BrowserPrograms(browser, driver) if browser and driver else None


def start_browser(programs: BrowserPrograms, profile: Path) -> Any:
    """Start the browser with an empty profile. It records its console and its requests."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = programs.browser
    for flag in FLAGS.split():
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=programs.driver))
