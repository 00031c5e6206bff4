"""Personal data: precision and recall of each type beside presidio, hits and CPU time on text without labels.

    python benchmarks/pii.py labelled FILE.json [--presidio PYTHON]
    python benchmarks/pii.py regions
    python benchmarks/pii.py corpus SHARD.jsonl.zst ... [--most-mb 100]
    python benchmarks/pii.py speed SHARD.jsonl.zst ... --presidio PYTHON [--documents 600]
    python benchmarks/pii.py make FILE.json                (needs faker)

`labelled` reads a list of {full_text, spans: [{entity_type, start_position, end_position}]}. A gold span is found when
a finding of its type overlaps it; a finding is right when it overlaps a gold span of its type. PYTHON is an interpreter
with presidio-analyzer: its default recognizers for English run with a blank pipeline over the same texts, and both are
timed by CPU, the middle of three runs. `regions` looks for the example numbers that phonenumbers has of all regions.
`speed` takes the first 2,600 characters of English documents. `make` writes a labelled file of 30 locales. Prints
Markdown, of misses only their number.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from backports import zstd
from common import buffers, head, megabytes, need, options, read_batches, row

from dataaudit.scan.detectors.patterns.screen import PatternScreen
from dataaudit.scan.detectors.pii import load_pii

TYPES = (
    "EMAIL_ADDRESS",
    "PHONE_NUMBER",
    "CREDIT_CARD",
    "IBAN_CODE",
    "IP_ADDRESS",
    "US_SSN",
    "US_DRIVER_LICENSE",
    "MAC_ADDRESS",
    "DATE_OF_BIRTH",
    "CRYPTO",
)
LOCALES = (
    "en_US en_GB de_DE fr_FR es_ES it_IT nl_NL pl_PL pt_BR pt_PT sv_SE no_NO fi_FI da_DK cs_CZ ru_RU uk_UA "
    "tr_TR ja_JP zh_CN ko_KR en_IN en_AU en_CA ro_RO hu_HU el_GR es_MX id_ID hr_HR"
)
SENTENCES = {
    "PHONE_NUMBER": ("My phone number is {}.", "Call me at {} tomorrow", "Tel: {}", "You can reach our office on {}"),
    "EMAIL_ADDRESS": ("Write to {} for details", "<{}>", "E-mail:{}"),
    "CREDIT_CARD": ("I paid with card {}", "{}", "card number: {} exp 09/27"),
    "IBAN_CODE": ("My IBAN is {}", "{}", "Transfer to {} by Friday"),
    "IP_ADDRESS": ("Connection from {} refused", "{} - - [10/Oct] GET /", "the address {} is blocked"),
    "MAC_ADDRESS": ("device {} joined", "mac={}"),
    "DATE_OF_BIRTH": ("born on {}", "Date of birth: {}", "DOB {}"),
    "STREET_ADDRESS": ("{}", "Ship it to {} by Friday", "Address: {}"),
}
PRESIDIO = """
import json, spacy, sys, time
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import SpacyNlpEngine
class Blank(SpacyNlpEngine):
    def load(self):
        self.nlp = {"en": spacy.blank("en")}
texts = json.load(sys.stdin)
analyzer = AnalyzerEngine(nlp_engine=Blank(), supported_languages=["en"])
analyzer.analyze("warm up 1.1.1.1", "en")
times = []
for _ in range(3):
    started = time.process_time()
    found = [[(r.entity_type, r.start, r.end, 0) for r in analyzer.analyze(text, "en")] for text in texts]
    times.append(time.process_time() - started)
json.dump({"found": found, "seconds": sorted(times)[1]}, sys.stdout)
"""
"""Answers texts on stdin with presidio's findings, in an environment that has presidio-analyzer."""
PASSAGE = 2600
"""Characters of a document whose time is taken."""
Span = tuple[str, int, int, int]
"""Type, first and last place in characters, tier."""


def read_labelled(path: Path) -> list[tuple[str, list[Span]]]:
    """Return texts with their gold spans."""
    items = json.loads(path.read_text(encoding="utf-8"))
    return [
        (item["full_text"], [(s["entity_type"], s["start_position"], s["end_position"], 0) for s in item["spans"]])
        for item in items
    ]


def ours(texts: list[str]) -> tuple[list[list[Span]], float]:
    """Return the findings of each text, and the CPU seconds."""
    screen = PatternScreen(registry=load_pii())
    values, offsets = buffers(texts)
    screen.find(values, offsets)
    times = []
    for _ in range(3):
        started = time.process_time()
        batch = screen.find(values, offsets)
        times.append(time.process_time() - started)
    seconds = sorted(times)[1]
    found: list[list[Span]] = [[] for _ in texts]
    for place, document in enumerate(batch.documents.tolist()):
        raw = texts[document].encode()
        first, last = (len(raw[: edges[place]].decode()) for edges in (batch.starts, batch.ends))
        found[document].append((batch.entities[batch.codes[place]], first, last, int(batch.tiers[place])))
    return found, seconds


def peers(python: str, texts: list[str]) -> tuple[list[list[Span]], float]:
    """Run presidio over the texts in its own environment."""
    done = subprocess.run([python, "-c", PRESIDIO], input=json.dumps(texts), capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout[done.stdout.index('{"found"') :])
    return answer["found"], answer["seconds"]


def scores(gold: list[list[Span]], found: list[list[Span]], kind: str) -> tuple[int, int, int, int, list[int]]:
    """Return gold spans, those found, findings, right ones, and the tiers in which gold spans were found."""
    spans = hits = said = right = 0
    tiers = [0, 0, 0]
    for wanted, given in zip(gold, found, strict=True):
        mine = [one for one in given if one[0] == kind]
        theirs = [one for one in wanted if one[0] == kind]
        said += len(mine)
        right += sum(any(a[1] < b[2] and b[1] < a[2] for b in theirs) for a in mine)
        for one in theirs:
            spans += 1
            over = [a[3] for a in mine if a[1] < one[2] and one[1] < a[2]]
            if over:
                hits += 1
                tiers[min(over)] += 1
    return spans, hits, said, right, tiers


def labelled(path: Path, python: str | None) -> None:
    """Print quality and speed on a labelled file."""
    items = read_labelled(path)
    texts, gold = [text for text, _ in items], [spans for _, spans in items]
    found, seconds = ours(texts)
    other, other_seconds = peers(python, texts) if python else ([[] for _ in texts], 0.0)
    head("type", "spans", "recall", "precision", "missed", "by tier (v / c / p)", "presidio: recall", "precision")
    kinds = {one[0] for spans in gold for one in spans}
    for kind in sorted(kinds & ({one[0] for spans in found for one in spans} | set(TYPES))):
        spans, hits, said, right, tiers = scores(gold, found, kind)
        _, hits2, said2, right2, _ = scores(gold, other, kind)
        theirs = (f"{hits2 / spans:.3f}", f"{right2 / max(1, said2):.3f}") if python else ("-", "-")
        shares = f"{hits / spans:.3f}", f"{right / max(1, said):.3f}"
        row(kind, f"{spans:,}", *shares, spans - hits, " / ".join(map(str, tiers)), *theirs)
    print_speed(texts, seconds, other_seconds)


def print_speed(texts: list[str], seconds: float, other: float) -> None:
    """Print both CPU times a MB."""
    size = megabytes(texts)
    print(f"\n{len(texts):,} texts, {size:.2f} MB: {seconds / size * 1e3:.1f} ms/MB of CPU", end="")
    print(f"; presidio {other / size * 1e3:,.0f} ms/MB, {other / seconds:,.0f} times" if other else "")


def regions() -> None:
    """Print recall on phonenumbers' example numbers: fixed lines and mobiles of every region."""
    import phonenumbers as library

    kinds = (library.PhoneNumberType.FIXED_LINE, library.PhoneNumberType.MOBILE)
    numbers = [
        one
        for region in sorted(library.SUPPORTED_REGIONS)
        for kind in kinds
        if (one := library.example_number_for_type(region, kind)) is not None
    ]
    head("format", "numbers", "recall with a word", "without")
    formats = library.PhoneNumberFormat
    for name, form in (
        ("E.164", formats.E164),
        ("international", formats.INTERNATIONAL),
        ("national", formats.NATIONAL),
        ("tel: URI", formats.RFC3966),
    ):
        shown = [library.format_number(one, form) for one in numbers]
        shares = []
        for sentence in ("My phone number is {}.", "Jane Roe, {}\n"):
            found, _ = ours([sentence.format(one) for one in shown])
            shares.append(sum(any(one[0] == "PHONE_NUMBER" for one in spans) for spans in found) / len(shown))
        row(name, len(shown), *(f"{share:.3f}" for share in shares))


def corpus(paths: list[Path], most_mb: float) -> None:
    """Print hits for 100 MB by entity and tier, and CPU time, on shards with a column `text`."""
    screen = PatternScreen(registry=load_pii())
    hits: Counter[tuple[str, int, bool]] = Counter()
    size, seconds, truncated = 0.0, 0.0, 0
    screen.find(*buffers(["warm up"]))
    for batch in read_batches(*paths):
        values, offsets = buffers(batch.texts.to_pylist())
        started = time.process_time()
        found = screen.find(values, offsets)
        seconds += time.process_time() - started
        truncated += int(found.truncated.sum())
        codes = found.codes.tolist(), found.tiers.tolist(), found.reserved.tolist()
        hits.update((found.entities[code], tier, reserved) for code, tier, reserved in zip(*codes, strict=True))
        size += len(values) / 1e6
        if size > most_mb:
            break
    head("entity", "validated", "contextual", "pattern", "reserved")
    for name in sorted({entity for entity, _, _ in hits}):
        cells = [hits[name, tier, False] for tier in range(3)] + [sum(hits[name, tier, True] for tier in range(3))]
        row(name, *(f"{number * 100 / size:,.0f}" for number in cells))
    print(f"\n{size:.0f} MB: {seconds / size * 1e3:.1f} ms/MB of CPU, {truncated} documents not read to their end")


def speed(paths: list[Path], python: str, documents: int) -> None:
    """Print CPU time beside presidio's on the beginnings of documents, of shards of JSON lines."""
    texts: list[str] = []
    for path in paths:
        with zstd.open(path, "rt", encoding="utf-8") as lines:
            records = (json.loads(line) for line in lines)
            own = [record["text"][:PASSAGE] for record in records if record.get("lang") in {None, "en"}]
        texts += own[:: max(1, len(own) * len(paths) // documents)]
    texts = [text for text in texts if text.strip()][:documents]
    print_speed(texts, ours(texts)[1], peers(python, texts)[1])


def make(path: Path, each: int = 12) -> None:
    """Write a labelled file of made values in 30 locales."""
    need("faker", "faker")
    from faker import Faker

    rng = random.Random(5)
    items = []
    for locale in LOCALES.split():
        maker = Faker(locale)
        maker.seed_instance(3)
        values = {
            "PHONE_NUMBER": maker.phone_number,
            "EMAIL_ADDRESS": maker.email,
            "CREDIT_CARD": maker.credit_card_number,
            "IBAN_CODE": maker.iban,
            "MAC_ADDRESS": maker.mac_address,
            "IP_ADDRESS": rng.choice([maker.ipv4, maker.ipv6]),
            "STREET_ADDRESS": maker.street_address,
            "DATE_OF_BIRTH": lambda maker=maker: maker.date_of_birth().strftime(rng.choice(["%d/%m/%Y", "%B %d, %Y"])),
        }
        for kind, value in values.items():
            for _ in range(each):
                shown, sentence = str(value()), rng.choice(SENTENCES[kind])
                first = sentence.index("{}")
                span = {"entity_type": kind, "start_position": first, "end_position": first + len(shown)}
                items.append({"full_text": sentence.replace("{}", shown), "spans": [span]})
    path.write_text(json.dumps(items), encoding="utf-8")
    print(f"{len(items)} texts in {path}")


def main() -> None:
    """Do what the first argument says."""
    given = options(__doc__, kind=str, files=[Path, ...], presidio=(str, None), most_mb=100.0, documents=600)
    kinds = {
        "labelled": lambda: labelled(*given.files, given.presidio),
        "regions": regions,
        "corpus": lambda: corpus(given.files, given.most_mb),
        "speed": lambda: speed(given.files, given.presidio or sys.executable, given.documents),
        "make": lambda: make(*given.files),
    }
    kinds[given.kind]()


if __name__ == "__main__":
    main()
