"""The commands' own words: arguments, `--help`, exit codes. What they do is imported when they run.

`main` registers each function here as a command of its name.
"""

from __future__ import annotations

__all__: list[str] = []
