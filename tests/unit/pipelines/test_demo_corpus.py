"""The demo's corpus on tiny made-up input: catalogues, pages, shards, and each planted fault."""

import gzip
import importlib.util
import random
import struct
import sys
import zlib
from pathlib import Path
from types import ModuleType

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataaudit.config import load_config

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIPELINES = Path(__file__).parents[3] / "pipelines"

CATALOG = r"""
msgid ""
msgstr "Language: de\n"

#: a/comment.py
msgid "Save"
msgstr "Speichern"

#, fuzzy, python-format
msgid "Guess %s"
msgstr "Vermutung %s"

msgctxt "menu"
msgid "one\n"
"\"file\""
msgid_plural "%d files"
msgstr[0] "eine\n"
"\"Datei\""
msgstr[1] "%d Dateien"

msgid "not yet"
msgstr ""

#~ msgid "old"
#~ msgstr "alt"
"""


def _load(name: str) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, PIPELINES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


sources = _load("demo_sources")
leaks = _load("demo_leaks")
content = _load("demo_content")
demo = _load("demo_corpus")


def _document(name, text, source="manual", lang="en"):
    return sources.Document(id=name, text=text, source=source, lang=lang)


def _compiled(catalog):
    """Return a .mo file of the pairs, header first."""
    entries = [("", "Language: de\n"), *catalog.items()]
    tables = {0: b"", 1: b""}
    texts = b""
    start = 28 + 16 * len(entries)
    for side in (0, 1):
        for entry in entries:
            data = entry[side].encode()
            tables[side] += struct.pack("<2I", len(data), start + len(texts))
            texts += data + b"\0"
    header = struct.pack("<7I", 0x950412DE, 0, len(entries), 28, 28 + 8 * len(entries), 0, 0)
    return header + tables[0] + tables[1] + texts


@pytest.fixture
def corpus():
    """As many documents of each source as leave 25 held-out ones to leak."""
    made = []
    for source in demo.SHARDS:
        lang = None if source == "code" else "de"
        for index in range(4000):
            text = f"{source} {index} " + "ein Wort\n" * 70
            made.append(_document(f"{source}/{index:04d}", text, source, lang))
    return made


@pytest.fixture
def made(corpus, tmp_path):
    """The corpus on disk with its faults."""
    demo.make(corpus, tmp_path, "recipe\n")
    return tmp_path


def _rows(path):
    """Read a whole, sound shard."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".arrow":
        with pa.ipc.open_file(path) as reader:
            return reader.read_all().to_pylist()
    data = path.read_bytes()
    data = {".gz": gzip.decompress, ".zst": zstd.decompress}.get(path.suffix, bytes)(data)
    return [orjson.loads(line) for line in data.splitlines()]


def test_po_messages_are_unescaped_and_come_without_header_fuzzy_obsolete_and_empty_ones():
    assert sources.po_messages(CATALOG) == ["Speichern", 'eine\n"Datei"', "%d Dateien"]


def test_mo_catalog_gives_the_pairs_without_the_header():
    pairs = {"Save": "Speichern", "Quit": "Schließen"}
    assert sources.mo_catalog(_compiled(pairs)) == pairs


def test_mo_catalog_of_another_format_is_refused():
    with pytest.raises(ValueError, match="little-endian"):
        sources.mo_catalog(b"\x95\x04\x12\xde" + bytes(24))


def test_page_is_translated_by_paragraph_and_flush_left():
    page = "show heads\n\n    More text.\n\n    Untranslated.\n    "
    catalog = {"show heads": "zeigt Köpfe", "    More text.": "    Mehr Text."}
    assert sources.translate_page(page, catalog) == "zeigt Köpfe\n\nMehr Text."


def test_page_of_which_less_than_half_is_translated_is_left_out():
    assert sources.translate_page("a\n\nb\n\nc", {"a": "x"}) is None


def test_docstrings_are_raw_and_named_by_path_and_definition():
    module = b'"""Top."""\ndef heads():\n    """show\n\n    More.\n    """\nassert False, "is not run"\n'
    assert sources.docstrings("m.py", module) == {"m.py": "Top.", "m.py#heads": "show\n\n    More.\n    "}


def test_language_is_that_of_the_locale_folder_or_english():
    assert sources._language("x/locale/pt_BR/LC_MESSAGES/x.po") == "pt"
    assert sources._language("locale/zh_Hans/x.po") == "zh"
    assert sources._language("x/help/index.rst") == "en"


def test_distinct_sorts_and_drops_short_texts_and_those_equal_but_for_case_and_spaces():
    text = "some words " * 10
    found = [_document("b", text), _document("a", text.upper().replace(" ", "\n")), _document("c", "short")]
    assert [each.id for each in sources.distinct(iter(found))] == ["a"]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "jsonl.gz", "jsonl.zst"])
def test_shard_has_its_documents_and_the_same_bytes_each_time(tmp_path, suffix):
    some = [_document(f"d{index}", f"Zeile {index}\nüber", lang=None) for index in range(200)]
    first, second = tmp_path / f"a/x.{suffix}", tmp_path / f"b/x.{suffix}"
    demo.write_shard(first, some)
    demo.write_shard(second, some)
    assert first.read_bytes() == second.read_bytes()
    expected = [{"id": each.id, "text": each.text, "source": "manual", "lang": None} for each in some]
    assert _rows(first) == expected
    if suffix == "parquet":
        assert pq.ParquetFile(first).metadata.num_row_groups > 1


def test_split_keeps_order_and_cuts_into_equal_amounts_of_text():
    some = [_document(str(index), "x" * size) for index, size in enumerate([50, 50, 10, 10, 80])]
    assert [[each.id for each in shard] for shard in demo.split(some, 2)] == [["0", "1"], ["2", "3", "4"]]


def test_about_one_document_in_a_hundred_is_held_out_by_its_id_alone(corpus, made):
    held = {each.id for each in corpus if demo.held_out(each.id)}
    assert 0.007 < len(held) / len(corpus) < 0.013
    val = {row["id"] for path in (made / "data/val").glob("*/part-*") for row in _rows(path)}
    assert val == held


def test_twin_is_a_shard_under_another_name(made):
    train = made / "data/train"
    assert (train / demo.TWIN).read_bytes() == (train / demo.TWIN_OF).read_bytes()
    assert len(_rows(train / demo.TWIN)) > 0


def test_leaked_documents_equal_held_out_ones_but_for_white_space(made):
    val = {row["text"] for row in _rows(made / "data/val/manual/part-000.jsonl.gz")}
    leaks = [row["text"] for row in _rows(made / "data/train" / demo.LEAKED_INTO)[-demo.NUM_LEAKED :]]
    assert not val & set(leaks)
    assert {" ".join(text.split()) for text in leaks} <= {" ".join(text.split()) for text in val}
    assert len(set(leaks)) == demo.NUM_LEAKED


def test_too_few_held_out_documents_to_leak_is_an_error():
    with pytest.raises(ValueError, match="expected 25"):
        demo.leaked([_document("a", "word " * 60)])


def test_cut_shard_ends_inside_a_frame(made):
    with pytest.raises(zstd.ZstdError):
        _rows(made / "data/train" / demo.CUT)


def test_broken_lines_are_bad_each_in_its_way_and_the_rest_is_untouched(corpus, made):
    lines = (made / "data/train" / demo.BROKEN).read_bytes().splitlines(keepends=True)
    assert [line for line in lines if line in demo.BROKEN_LINES] == list(demo.BROKEN_LINES)
    good = [orjson.loads(line)["id"] for line in lines if line not in demo.BROKEN_LINES]
    own = [each.id for each in corpus if each.source == "messages" and not demo.held_out(each.id)]
    assert good == [*own, *(each.id for each in content.rude_comments())]
    encoding, cut, number = demo.BROKEN_LINES
    with pytest.raises(UnicodeDecodeError):
        encoding.decode()
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(cut)
    assert isinstance(orjson.loads(number)["text"], int)


def test_other_shards_hold_each_document_once_and_nothing_but_the_leaks_is_added(corpus, made):
    train = made / "data/train"
    faulty = {train / name for name in (demo.TWIN, demo.CUT, demo.BROKEN)}
    sound = [path for path in train.glob("*/part-*") if path not in faulty]
    read = [row["id"] for path in sound for row in _rows(path)]
    assert len(read) == len(set(read))
    added = set(read) - {each.id for each in corpus if not demo.held_out(each.id)}
    assert len(added) == demo.NUM_LEAKED + leaks.NUM_REWRITTEN + content.NUM_RECORDS
    assert all(name.startswith(("mirror/", "rewrite/", "members/")) for name in added)


def test_documents_of_the_stuck_shard_end_with_their_last_line_repeated(corpus, made):
    texts = {each.id: each.text for each in corpus}
    for row in _rows(made / "data/train" / demo.STUCK):
        text = texts[row["id"]]
        last = text.rstrip().splitlines()[-1][: demo.STUCK_CHARS]
        assert row["text"] == text + f"\n{last}" * demo.STUCK_TIMES


def test_rewritten_documents_have_one_word_in_a_hundred_changed(made):
    rows = {row["id"]: row["text"] for row in _rows(made / "data/train" / leaks.REWRITTEN)}
    copies = {name: text for name, text in rows.items() if name.startswith("rewrite/")}
    assert len(copies) == leaks.NUM_REWRITTEN
    for name, text in copies.items():
        words, before = text.split(), rows[name.removeprefix("rewrite/")].split()
        changed = [place for place, word in enumerate(words) if word != before[place]]
        assert len(words) == len(before)
        assert changed == list(range(leaks.CHANGED_ONE_IN // 2, len(words), leaks.CHANGED_ONE_IN))


def test_items_of_the_quiz_stand_inside_documents(made):
    items = [orjson.loads(line) for line in leaks.QUIZ.read_bytes().splitlines()]
    texts = [" ".join(row["text"].split()).lower() for row in _rows(made / "data/train" / leaks.QUIZ_INTO)]
    found = [any(" ".join(item["question"].split()).lower() in text for text in texts) for item in items]
    assert found == [True] * leaks.NUM_VERBATIM + [False] * (len(items) - leaks.NUM_VERBATIM)
    assert sum("something" in text for text in texts) == leaks.NUM_EDITED


def test_the_sentence_of_61_words_is_in_so_many_documents(made):
    assert len(leaks.SENTENCE.split()) == 61
    rows = _rows(made / "data/train" / leaks.REPEATED_INTO)
    assert sum(leaks.SENTENCE in row["text"] for row in rows) == leaks.NUM_REPEATED


def test_insults_records_and_keys_are_where_the_page_says(made):
    lines = (made / "data/train" / content.RUDE_INTO).read_bytes().splitlines()
    rude = [orjson.loads(line)["text"] for line in lines if b"rude/" in line]
    assert len(rude) == len(set(rude)) == content.NUM_RUDE
    records = [row["text"] for row in _rows(made / "data/train" / content.RECORDS_INTO)][-content.NUM_RECORDS :]
    assert all("IBAN DE" in text and f"@{content._MAIL}" in text for text in records)
    keys = [row["text"] for row in _rows(made / "data/train" / content.KEYS_INTO)]
    assert sum("TODO remove: ghp" in text for text in keys) == content.NUM_KEYS


def test_numbers_of_accounts_cards_and_tokens_carry_their_checks():
    made = random.Random(3)
    for _ in range(50):
        iban = content.german_iban(made).replace(" ", "")
        assert int(iban[4:] + "1314" + iban[2:4]) % 97 == 1
        digits = [int(digit) for digit in content.card_number(made).replace(" ", "")]
        doubled = sum(sum(divmod(2 * digit, 10)) for digit in digits[0::2])
        assert (doubled + sum(digits[1::2])) % 10 == 0
        body = content.access_token(made)[4:]
        check = 0
        for letter in body[30:]:
            check = check * 62 + content._BASE62.index(letter)
        assert check == zlib.crc32(body[:30].encode())


def test_page_names_every_fault(made):
    page = (made / "PLANTED.md").read_text()
    for place in (
        demo.TWIN,
        demo.LEAKED_INTO,
        demo.CUT,
        demo.BROKEN,
        demo.OFF_MIXTURE,
        demo.STUCK,
        content.RUDE_INTO,
        content.KEYS_INTO,
    ):
        assert f"{place}`" in page


def test_made_again_it_has_the_same_bytes_and_nothing_of_a_killed_run(corpus, made):
    def contents():
        return {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}

    before = contents()
    (made / "data/COMPLETE").unlink()
    (made / "data/train/code/part-999.parquet").write_bytes(b"of an older recipe")
    (made / "data.partial").mkdir()
    (made / "data.partial/half").write_bytes(b"of a killed run")
    demo.make(corpus, made, "recipe\n")
    assert contents() == before


def test_complete_corpus_is_left_alone_and_one_of_another_recipe_is_made_again(corpus, tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(demo, "download", lambda folder: calls.append(folder) or {})
    monkeypatch.setattr(demo, "documents", lambda _: iter(corpus))
    for expected in (1, 1):
        assert demo.main(["--out", str(tmp_path)]) == 0
        assert len(calls) == expected
        assert demo.TWIN in capsys.readouterr().out
    monkeypatch.setattr(demo, "RECIPE", "dataaudit-demo 1.0.1")
    demo.main(["--out", str(tmp_path)])
    assert len(calls) == 2


def test_packages_are_pinned_by_hash_and_name_no_place():
    content = demo.PACKAGES.read_text()
    assert content.count("==") == content.count("--hash=sha256:") == 4
    assert "://" not in content


def test_config_declares_a_weight_for_each_source_that_sum_to_one():
    config = load_config(PIPELINES / "demo.yaml")
    assert set(config.mixture) == set(demo.SHARDS)
    assert sum(entry.weight for entry in config.mixture.values()) == pytest.approx(1)
    assert config.splits["val"].held_out
