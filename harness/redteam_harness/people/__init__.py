"""What people say of a run: labels beside a judge's verdicts, and spot checks of the personas.

`registers` is what reports read: what was measured before, and whether it still holds.
"""

from __future__ import annotations

__all__: list[str] = []
