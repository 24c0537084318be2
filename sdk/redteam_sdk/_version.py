"""The one version of both distributions, redteam-forker and redteam-sdk."""

from __future__ import annotations

__version__ = "0.1.0"
