"""What people say of a run: labels beside a judge's verdicts, and spot checks of the personas.

What was measured before, and whether it still holds, is in `redteam_harness.registers.people`.
"""

from __future__ import annotations

__all__: list[str] = []
