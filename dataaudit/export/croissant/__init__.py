"""Croissant 1.1 with fields of responsible AI: a manifest as catalogues and loaders read it."""

from dataaudit.export.croissant.document import croissant, export_croissant

__all__ = ["croissant", "export_croissant"]
