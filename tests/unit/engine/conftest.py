import pytest
from made_build import STAGE_LIST, config

from dataaudit.config import LanguageConfig
from dataaudit.engine.runner import ScanSettings
from dataaudit.engine.store import PartialStore
from dataaudit.scan.annotators import Findings, Languages, Names, Tokens, Toxicity, Words
from dataaudit.scan.corpus.tokens import Risks, resolve_tokenizer
from dataaudit.scan.detectors import resolve_content, resolve_languages


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    return PartialStore(tmp_path)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """The embedded tokenizer, resolved once, and risks that send everything to the reference."""
    folder = tmp_path_factory.mktemp("tokenizers")
    file = resolve_tokenizer(None, base_dir=folder, cache_dir=folder)
    return file, Risks(supported=False, reason="unsupported_model")


@pytest.fixture(scope="module")
def languages(tmp_path_factory):
    """The detectors of a build without any setting."""
    folder = tmp_path_factory.mktemp("detectors")
    return resolve_languages(LanguageConfig(), base_dir=folder, cache_dir=folder)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The screen and the patterns of a build without any setting."""
    return resolve_content(
        config(), base_dir=tmp_path_factory.mktemp("content"), screen=True, detectors=frozenset({"pii", "secrets"})
    )


@pytest.fixture
def settings(tokenizer, languages, content, tmp_path):
    """Settings of a scan whose state folder is empty."""
    return ScanSettings(
        state=tmp_path / "state",
        stages=STAGE_LIST,
        annotators=(
            Tokens(tokenizer=tokenizer[0], risks=tokenizer[1], force_reference=True, seed=0),
            Words(),
            Names(),
            Languages(models=languages, seed=0),
            Toxicity(model=content.screen),
            Findings(patterns=content.patterns, digests={}),
        ),
    )
