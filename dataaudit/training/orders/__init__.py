"""Orders of other trainers, saved or computed: which documents each step of a run without tags was trained on."""

from __future__ import annotations
