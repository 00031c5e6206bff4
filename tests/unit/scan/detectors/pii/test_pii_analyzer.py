"""presidio with a blank pipeline, and with a small model of language; its recognizers and ours in one registry."""

import logging
import pickle
import socket
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tiny_ner import write_model

from dataaudit.base.errors import ConfigError, DetectorError
from dataaudit.scan.detectors.judges import Absence
from dataaudit.scan.detectors.patterns.registry import build_registry
from dataaudit.scan.detectors.patterns.written import Names, parse_layer
from dataaudit.scan.detectors.pii.analyzer import Failure, PiiAnalyzer
from dataaudit.scan.detectors.pii.analyzer_model import AnalyzerModel, AnalyzerSettings, resolve_analyzer

pytestmark = pytest.mark.judges

MINE = """
entities:
  STAFF_NUMBER:
    rules: [{regex: 'SN-\\d{6}'}]
    context: [staff]
  EMAIL_ADDRESS:
    rules: [{regex: '\\w+@\\w+\\.corp', tiers: {form_bare: validated}}]
"""


def registry_of(*texts):
    layers = [parse_layer(text, where="mine", detector="pii", names=Names()) for text in texts]
    return build_registry(layers, names=Names(), versions={})


@pytest.fixture(scope="module")
def registry():
    return registry_of(MINE)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("ner") / "tiny")


@pytest.fixture
def blank(registry, tmp_path):
    return resolved(AnalyzerSettings(), registry, tmp_path)


@pytest.fixture
def named(registry, model_folder):
    return resolved(AnalyzerSettings(model=model_folder.name), registry, model_folder.parent)


def resolved(settings, registry, base_dir):
    model = resolve_analyzer(settings, registry, base_dir)
    assert isinstance(model, AnalyzerModel), model
    return model


def column(*texts):
    return pa.array(texts, pa.large_string())


def found(analysis, texts):
    """Return (document, entity, bytes) of each hit."""
    return [
        (int(document), analysis.entities[code], texts[document].encode()[start:end].decode())
        for document, code, start, end in zip(
            analysis.documents, analysis.codes, analysis.starts, analysis.ends, strict=True
        )
    ]


def test_an_entity_of_the_users_file_and_presidios_are_found_side_by_side(blank):
    texts = ["caf\u00e9 \U0001f600 staff SN-123456, jo@gmail.com, 4111 1111 1111 1111", "nothing", "a@b.corp"]
    hits = found(PiiAnalyzer(blank).analyze(column(*texts)), texts)
    assert (0, "STAFF_NUMBER", "SN-123456") in hits
    assert (0, "EMAIL_ADDRESS", "jo@gmail.com") in hits
    assert (0, "CREDIT_CARD", "4111 1111 1111 1111") in hits
    assert (2, "EMAIL_ADDRESS", "a@b.corp") in hits
    assert not [hit for hit in hits if hit[0] == 1]


def test_a_model_of_language_adds_names_places_and_organisations(named, blank):
    texts = ["\u00c0 propos, Jos\u00e9 Ruiz of Acme Corp met Anna Berg in Lisbon for ten dollars"]
    hits = found(PiiAnalyzer(named).analyze(column(*texts)), texts)
    assert hits == [
        (0, "PERSON", "Jos\u00e9 Ruiz"),
        (0, "ORGANIZATION", "Acme Corp"),
        (0, "PERSON", "Anna Berg"),
        (0, "LOCATION", "Lisbon"),
    ]
    assert {"PERSON", "LOCATION", "ORGANIZATION"} <= set(named.entities)
    assert not {"PERSON", "LOCATION", "ORGANIZATION", "NRP"} & set(blank.entities)
    assert named.sha256 != blank.sha256


def test_a_label_that_presidio_does_not_know_can_be_given_a_meaning(registry, model_folder):
    settings = AnalyzerSettings(model=str(model_folder), labels=(("MONEY", "AMOUNT"),))
    model = resolved(settings, registry, model_folder.parent)
    texts = ["it cost ten dollars"]
    assert found(PiiAnalyzer(model).analyze(column(*texts)), texts) == [(0, "AMOUNT", "ten dollars")]


def test_scores_rise_with_words_of_context(blank):
    texts = ["reach SN-123456 now", "staff number SN-123456 now"]
    analysis = PiiAnalyzer(blank).analyze(column(*texts))
    assert np.round(analysis.scores, 2).tolist() == [np.float32(0.3), np.float32(0.7)]


def test_a_file_of_entities_switches_recognizers_of_presidio(blank, tmp_path):
    texts = ["see http://example.org/a and 12345678Z"]
    more = "presidio: {enable: EsNifRecognizer, disable: [UrlRecognizer]}\nentities: {}"
    changed = resolved(AnalyzerSettings(), registry_of(MINE, more), tmp_path)
    assert "URL" in blank.entities
    assert "ES_NIF" not in blank.entities
    assert "URL" not in changed.entities
    assert (0, "ES_NIF", "12345678Z") in found(PiiAnalyzer(changed).analyze(column(*texts)), texts)
    assert blank.sha256 != changed.sha256
    back = "presidio: {enable: UrlRecognizer, disable: EsNifRecognizer}\nentities: {}"
    again = registry_of(MINE, more, back)
    assert (again.enable, again.disable) == (("UrlRecognizer",), ("EsNifRecognizer",))
    assert resolved(AnalyzerSettings(), again, tmp_path).sha256 == blank.sha256


@pytest.mark.parametrize(
    "switch", ["disable: UrlRecogniser", "enable: EsNifRecogniser", "enable: AzureAILanguageRecognizer"]
)
def test_a_recognizer_that_is_not_there_is_named(switch, tmp_path):
    registry = registry_of(f"presidio: {{{switch}}}\nentities: {{}}")
    with pytest.raises(ConfigError, match=r"presidio has no recognizer \w+ "):
        resolve_analyzer(AnalyzerSettings(), registry, tmp_path)


def test_hits_do_not_depend_on_how_a_long_text_is_cut(named):
    text = "".join(f"{index} Anna Berg, staff SN-{index:06d} \u00e9\n" for index in range(900))
    analysis = PiiAnalyzer(named).analyze(column(text))
    hits = found(analysis, [text])
    assert [hit for _, entity, hit in hits if entity == "STAFF_NUMBER"] == [f"SN-{index:06d}" for index in range(900)]
    assert sum(entity == "PERSON" for _, entity, _ in hits) == 900
    assert analysis.analyzed.tolist() == [len(text.encode())]
    assert analysis.whole.tolist() == [True]


def test_of_a_longer_document_some_stretches_are_looked_at(blank):
    text = "".join(f"staff SN-{index:06d} \u00e9\n" for index in range(1000))
    analyzer = PiiAnalyzer(replace(blank, stretch=512, max_stretches=4))
    analysis, again = analyzer.analyze(column(text)), analyzer.analyze(column("x", text))
    assert not analysis.whole[0]
    assert analysis.starts.tolist() == again.starts[again.documents == 1].tolist()
    staff = (analysis.codes == analysis.entities.index("STAFF_NUMBER")).sum()
    assert abs(staff - analysis.analyzed[0] / 19) <= 4
    assert 4 * 400 < analysis.analyzed[0] < 4 * 600


def test_a_second_opinion_knows_the_context_and_presidios_own_view(blank):
    text = "Staff card \u00e9: SN-123456. Phone me: (212) 555-0187. Number 4111 1111 1111 1112"
    data = text.encode()
    spans = [b"SN-123456", b"(212) 555-0187", b"4111 1111 1111 1112", b"Staff"]
    starts = np.array([data.index(span) for span in spans])
    ends = starts + [len(span) for span in spans]
    names = ["STAFF_NUMBER", "PHONE_NUMBER", "CREDIT_CARD", "UNHEARD_OF"]
    said = PiiAnalyzer(blank).confirm(column("other", text), np.ones(4, dtype=np.int32), starts, ends, names)
    assert np.allclose(said.scores, [0.7, 0.75, 0.0, np.nan], equal_nan=True, atol=1e-4)
    assert np.allclose(said.peers, [np.nan, 0.75, 0.0, np.nan], equal_nan=True, atol=1e-4)


def test_a_document_that_the_libraries_fail_on_costs_itself_alone(blank, monkeypatch, caplog, capsys):
    from presidio_analyzer import AnalyzerEngine

    usual = AnalyzerEngine.analyze

    def failing(self, text, *rest, **named):
        if "canary" in text:
            logging.getLogger("presidio-analyzer").warning(text)
            raise ValueError(text)
        return usual(self, text, *rest, **named)

    monkeypatch.setattr(AnalyzerEngine, "analyze", failing)
    with caplog.at_level(logging.DEBUG):
        analysis = PiiAnalyzer(blank).analyze(column("SN-123456", "canary SN-654321", "SN-123457"))
    assert analysis.failures == (None, Failure.FAILED, None)
    assert analysis.documents.tolist() == [0, 2]
    assert analysis.analyzed.tolist() == [9, 0, 9]
    written = capsys.readouterr()
    assert "canary" not in caplog.text + written.out + written.err


def test_nothing_of_a_text_is_logged(named, caplog):
    with caplog.at_level(logging.DEBUG):
        PiiAnalyzer(named).analyze(column("canary phone 212-555-0187 Anna Berg canary@canary.com"))
    assert "canary" not in caplog.text.lower()


def test_no_network_is_asked(blank, monkeypatch):
    def never(*_, **__):
        raise AssertionError("a network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    monkeypatch.setattr(socket.socket, "connect", never)
    texts = ["jo@mail.co.uk"]
    assert (0, "EMAIL_ADDRESS", "jo@mail.co.uk") in found(PiiAnalyzer(blank).analyze(column(*texts)), texts)


def test_a_model_that_is_not_there_is_a_reason_and_not_an_error(registry, tmp_path):
    absent = resolve_analyzer(AnalyzerSettings(model="en_core_web_lg"), registry, tmp_path)
    assert (absent.reason, "en_core_web_lg" in absent.message) == (Absence.WEIGHTS_ABSENT, True)


def test_a_broken_model_is_a_reason_and_not_an_error(registry, tmp_path):
    (tmp_path / "config.cfg").write_text("[nlp]\nlang = 3\n")
    (tmp_path / "meta.json").write_text("{}")
    assert resolve_analyzer(AnalyzerSettings(model="."), registry, tmp_path).reason is Absence.BROKEN_CHECKPOINT
    assert resolve_analyzer(AnalyzerSettings(language="xyz"), registry, tmp_path).reason is Absence.BROKEN_CHECKPOINT


def test_without_the_library_the_reason_says_how_to_get_it(registry, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    absent = resolve_analyzer(AnalyzerSettings(), registry, tmp_path)
    assert (absent.reason, "dataaudit[pii]" in absent.hint) == (Absence.NOT_INSTALLED, True)


def test_a_model_that_changed_since_it_was_found_is_refused(registry, tmp_path):
    folder = write_model(tmp_path / "tiny")
    model = resolved(AnalyzerSettings(model="tiny"), registry, tmp_path)
    with (folder / "meta.json").open("a") as file:
        file.write("\n")
    with pytest.raises(DetectorError, match="another spaCy model"):
        PiiAnalyzer(model).analyze(column("x"))


def test_an_analyzer_is_sent_to_a_worker_as_a_small_name(named):
    sent = pickle.dumps(named)
    assert pickle.loads(sent) == named
    assert len(sent) < 10_000


def test_no_documents_have_no_hits(blank):
    analysis = PiiAnalyzer(blank).analyze(column())
    assert (len(analysis.documents), analysis.analyzed.shape, analysis.failures) == (0, (0,), ())
