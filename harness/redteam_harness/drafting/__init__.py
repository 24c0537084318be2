"""Drafts a suite from a seed, for `redteam init --seed`: read, guess, try, write.

    catalog ─► people, owned ─► look (data) ─► changeable ─► trial (forks) ─► dates ─► *_text ─► files

What is a guess is marked `decide` in what is written. What could be tried was tried: changes and moved dates
on forks, the whole suite as a launch loads it. It knows no model, and reads a bounded part of the data.
"""

from __future__ import annotations

from redteam_harness.drafting.drafting import Drafting, draft_suite
from redteam_harness.drafting.suite_text import suite_name

__all__ = ["Drafting", "draft_suite", "suite_name"]
