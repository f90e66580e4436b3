"""Chromium, for the tests that look at a page as a reader sees it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
NO_BROWSER = "no Chromium: install Debian's package `chromium`"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-component-update", "--disable-background-networking", "--virtual-time-budget=5000",
)  # fmt: skip
needs_browser = pytest.mark.skipif(BROWSER is None, reason=NO_BROWSER)


def chromium(page: Path, *options: str) -> str:
    """What Chromium writes to the terminal when it opens ``page``; its profile lies beside the page."""
    profile = page.with_name(f"profile-{page.stem}")
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
