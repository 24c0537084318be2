"""The HTML of a change set in a real browser: safe, readable in both colour schemes, at any width."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest
from support.shown import NAMES, everything, hostile_set

from redteam_forker.changes.render import ALL, html_page, shown

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker.changes import ChangeSet

_BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(_BROWSER is None, reason="no Chromium on the PATH"),
    pytest.mark.timeout(120),
]

# Measures the page from inside, and leaves what it found as its only text.
_PROBE = """
<p id="outside">outside <del>text</del></p>
<script>
const luminance = ([r, g, b]) => [r, g, b].map(c => c / 255)
  .map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
const rgb = text => text.match(/[\\d.]+/g).map(Number);
const behind = element => {
  for (let one = element; one; one = one.parentElement) {
    const found = rgb(getComputedStyle(one).backgroundColor);
    if (found.length < 4 || found[3] > 0) return found;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
};
const contrast = element => {
  const [a, b] = [rgb(getComputedStyle(element).color), behind(element)].map(luminance);
  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
};
const all = [...document.querySelectorAll(".rt-changes *")];
const hasText = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
const texts = all.filter(e => hasText(e) && e.tagName !== "STYLE");
const del = document.querySelector(".rt-changes tbody:not(.rt-whole) del");
const found = {
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  contrast: Math.min(...texts.map(contrast)),
  overflow: document.documentElement.scrollWidth - innerWidth,
  hostile: document.querySelectorAll("img, svg, iframe, a, .rt-changes script, [onload], [onerror]").length,
  said: globalThis.said ?? null,
  struck: del ? getComputedStyle(del).textDecorationLine : null,
  outside: getComputedStyle(document.querySelector("#outside del")).backgroundColor,
  texts: texts.length,
};
document.body.textContent = JSON.stringify(found);
</script>
"""


def measured(folder: Path, changes: ChangeSet, *, dark: bool, width: int) -> dict[str, Any]:
    page = html_page(shown(changes, names=NAMES, bounds=ALL), title="what changed")
    # An alert would wait for somebody: here it only leaves its word.
    page = page.replace(
        "<head>", "<head><script>globalThis.alert = word => { globalThis.said = word; }</script>"
    )
    path = folder / "page.html"
    path.write_text(page.replace("</body>", f"{_PROBE}</body>"), encoding="utf-8")
    assert _BROWSER is not None
    done = subprocess.run(
        [
            _BROWSER,
            "--headless",
            "--disable-gpu",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            f"--user-data-dir={folder / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--window-size={width},900",
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    body = re.search(r"<body>(.*?)</body>", done.stdout, re.DOTALL)
    assert body is not None, done.stdout[-500:]
    found = json.loads(unescape(body[1]))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 500])
def test_a_page_fits_its_window_and_its_text_stands_out(tmp_path: Path, dark: bool, width: int) -> None:
    found = measured(tmp_path, everything(), dark=dark, width=width)
    assert found["dark"] is dark
    assert found["texts"] > 100
    assert found["contrast"] >= 4.5  # WCAG 2 AA
    assert found["overflow"] <= 0
    assert found["struck"] == "line-through"  # what is gone is told without colour, too
    assert found["outside"] == "rgba(0, 0, 0, 0)"  # and nothing else of the page is restyled


def test_no_value_runs_in_a_browser_or_breaks_its_page(tmp_path: Path) -> None:
    found = measured(tmp_path, hostile_set(), dark=False, width=500)
    assert (found["hostile"], found["said"]) == (0, None)
    assert found["overflow"] <= 0
