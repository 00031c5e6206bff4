"""The manifest: schemas of every table, canonical form and digest, publishing, loading, verifying.

Knows nothing of how the numbers were made. Whatever reads results (gate, report, export, training)
reads them through :func:`dataaudit.manifest.load.load_manifest` and nothing else.
"""
