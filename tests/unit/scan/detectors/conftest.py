"""The detectors with their real models, which the packages carry."""

from pathlib import Path

import pytest

from dataaudit.config import LanguageConfig
from dataaudit.scan.detectors import resolve_languages
from dataaudit.scan.detectors.language import load_detector


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """What a build without any setting uses."""
    return resolve_languages(LanguageConfig(), base_dir=Path(), cache_dir=tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def loaded(models):
    """Every detector by name."""
    return {model.name: load_detector(model) for model in models.named}


@pytest.fixture(params=["combined", "pycld2", "fasttext"])
def detector(request, loaded):
    """One after the other."""
    return loaded[request.param]
