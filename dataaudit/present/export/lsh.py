"""``dataaudit export lsh``: the signatures of a manifest as an index of datasketch that answers queries.

The file is a pickled ``datasketch.MinHashLSH``, as datasketch itself writes it; its keys are ``shard:row``. A query has
to be made of the same shingles: ``dataaudit.scan.kernels.minhash.sketch`` gives its values
(``dataaudit explain later-corpora-and-other-programs``).
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from dataaudit.base.errors import ManifestError
from dataaudit.base.extras import require
from dataaudit.base.render.result import Written
from dataaudit.manifest.minhash import STAGE, read_signatures, signature_settings
from dataaudit.metrics.relations import load_consistent
from dataaudit.present.export.output import write_file

SCHEME, SEED = "affine32", 1


def export_lsh(folder: Path, out: Path) -> Written:
    """Write the index; return what it holds."""
    require("export lsh", "export")
    from datasketch import MinHash, MinHashLSH

    manifest = load_consistent(folder)
    settings = signature_settings(manifest)
    if settings is None:
        raise ManifestError(
            f"{folder} keeps no signatures", "Build it with `stages: {near_dup: {signatures: true}}`, then export."
        )
    bands, rows = (int(manifest.metrics(f"{STAGE}_rate", stat)[0].value or 0) for stat in ("bands", "band_rows"))
    index = MinHashLSH(num_perm=settings.num_perm, params=(bands, rows))
    permutations = MinHash(num_perm=settings.num_perm, seed=SEED, scheme=SCHEME).permutations
    documents = 0
    for shard, table in read_signatures(manifest):
        values = np.frombuffer(b"".join(table["signature"].to_pylist()), dtype="<u4").reshape(-1, settings.num_perm)
        with index.insertion_session() as session:
            for row, signature in zip(table["row"].to_pylist(), values, strict=True):
                sketch = MinHash(seed=SEED, hashvalues=signature, permutations=permutations, scheme=SCHEME)
                session.insert(f"{shard}:{row}", sketch, check_duplication=False)
        documents += table.num_rows
    data = pickle.dumps(index, protocol=pickle.HIGHEST_PROTOCOL)
    write_file(out, data, folder)
    facts = {"manifest": manifest.id, "documents": documents, "bands": bands, "band_rows": rows}
    words = f"{documents:,} documents in {bands} bands of {rows} values, keys shard:row"
    return Written(file=out, data=data, words=words, facts=facts)
