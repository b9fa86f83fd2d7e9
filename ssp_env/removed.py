"""Settings and commands that are gone, each with what to do instead; commit 1662d6ae has them."""

from __future__ import annotations

SETTINGS = {
    "learning.privileged": "leave it out: it did not help (docs/findings/teachers.md)",
    "learning.turn_credit": "leave it out: it did not help (docs/findings/teachers.md)",
}
"""By dotted name."""
