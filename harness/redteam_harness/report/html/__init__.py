"""The report as one HTML file, for a reviewer who is no engineer: it needs no network and no server."""

from __future__ import annotations

from redteam_harness.report.html.build import html_report

__all__ = ["html_report"]
