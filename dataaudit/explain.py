"""``dataaudit explain``: the section of the documentation about a code, a rule, a metric or a page.

The text is that of the pages that the site is built from; the wheel has them in ``dataaudit/docs``. A name stands for
the heading that has it, or for the row of a table or the item of a list that begins with it; a name that stands nowhere
else is looked for in all code of the pages.
"""

from __future__ import annotations

import difflib
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError

PAGES = (
    *(f"{folder}/*.md" for folder in ("reference", "concepts", "howto", "live", "probes")),
    *("training.md", "vitals.md", "mechanism.md", "lab.md", "glossary.md"),
)
"""Pages that the wheel has."""
_PACKAGE = Path(__file__).parent
_LIVE = _PACKAGE / "live"
_CODE = re.compile(r"`([^`\n]+)`")
_ONLY_CODE = re.compile(r"(?:\*\*)?`[^`]+`(?:\*\*)?(?:(?:, | or | / )`[^`]+`)*")
_HEADING = re.compile(r"(#{1,4}) (.+)")
_FENCE = re.compile(r" *(?:```|~~~)")
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]*)\)")
_NAME = re.compile(r"[\w.\[\]/-]+")
_NEAREST = 3


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page."""

    page: str
    """Path below ``docs/``."""
    titles: tuple[str, ...]
    """Of the page, and of the headings above it."""
    text: str
    """Markdown; links lead to names that this command explains, or to the web."""


def docs_folder() -> Path:
    """Return the folder of the pages: that of the wheel, or of a checkout."""
    shipped = _PACKAGE / "docs"
    return shipped if shipped.is_dir() else _PACKAGE.parent / "docs"


def explain(name: str | None, *, as_json: bool) -> str:
    """Return the sections about a name, or every name that has one."""
    known, mentioned = names()
    if name is None:
        return _listed(known, as_json=as_json)
    wanted = _plain(name)
    both = (part.get(item, []) for item in (wanted, wanted.removeprefix("baseline_")) for part in (known, mentioned))
    matches = _in_section(wanted, known) or next((own for own in both if own), [])
    if not matches:
        close = difflib.get_close_matches(wanted, known, n=_NEAREST)
        meant = f" (did you mean {' or '.join(f'`{item}`' for item in close)}?)" if close else ""
        raise ConfigError(f"nothing is explained under `{t.clean(name, 60)}`{meant}", "`dataaudit explain` lists all.")
    matches = sorted(
        [section for section in matches if section.text.startswith("#")] or matches,
        key=lambda section: Path(section.page).stem != wanted,  # the page of that name comes first
    )
    if as_json:
        sections = [{"page": section.page, "titles": list(section.titles), "text": section.text} for section in matches]
        return t.as_json({"name": wanted, "sections": sections})
    return _shown(matches)


def _in_section(wanted: str, known: dict[str, list[Section]]) -> list[Section]:
    """Return the sections about ``name`` below a heading ``set: ...``, for ``set.name``; ``N`` stands for a number."""
    set_, _, name = wanted.rpartition(".")
    own = known.get(name) or known.get(re.sub(r"\d+", "n", name), [])
    return [section for section in own if set_ and section.titles[-1].lower().partition(":")[0] == set_]


def names() -> tuple[dict[str, list[Section]], dict[str, list[Section]]]:
    """Return the sections by the names that they are about; and by the code that they mention, where they are not."""
    known: dict[str, list[Section]] = {}
    mentioned: dict[str, list[Section]] = {}
    folder = docs_folder()
    pages = {path.relative_to(folder).as_posix(): path for own in PAGES for path in sorted(folder.glob(own))}
    pages |= {f"runbooks/{path.name}": path for path in sorted((_LIVE / "runbooks").glob("*.md"))}
    stems = {path.stem for path in pages.values()}
    for page, path in pages.items():
        text = _linked(_COMMENT.sub("", path.read_text(encoding="utf-8")), path.stem, stems)
        for keys, section in _sections(page, text):
            for key in keys:
                own = known.setdefault(key, [])
                if not any(section.text in item.text for item in own if item.page == page):
                    own.append(section)
            for code in () if section.text.startswith("#") else dict.fromkeys(_CODE.findall(section.text)):
                mentioned.setdefault(_plain(code.partition(": ")[0]), []).append(section)
    for rule, runbook in re.findall(
        r"- name: (\w+)\n(?:    (?!runbook).*\n)*(?:    runbook: (\w+)\n)?",
        (_LIVE / "alerts.yaml").read_text("utf-8"),
    ):
        known.setdefault(rule, known.get(runbook, []))
    return known, mentioned


def _sections(page: str, text: str) -> Iterator[tuple[list[str], Section]]:
    """Yield the page, its sections and their blocks, each with the names that it is about; of other blocks none."""
    lines = text.splitlines()
    above: list[tuple[int, str]] = []
    stem = Path(page).stem
    for number, title, body, own in _headings(lines):
        above = [*(item for item in above if item[0] < number), (number, _text(title))]
        titles = tuple(name for _, name in above)
        slug = _slug(title)
        keys = [stem] if number == 1 else [slug, re.sub("^(?:a|the)-", "", slug), f"{stem}#{slug}"]
        yield [*_names(title), *keys], Section(page, titles, body)
        for keys, block in _blocks(own):
            yield keys, Section(page, titles, block)


def _headings(lines: list[str]) -> Iterator[tuple[int, str, str, str]]:
    """Yield each heading: level, title, the text up to the next of that level or above, and that up to the next one."""
    fenced, starts = False, []
    for start, line in enumerate(lines):
        fenced ^= bool(_FENCE.match(line))
        match = None if fenced else _HEADING.fullmatch(line)
        if match:
            starts.append((start, len(match[1]), match[2]))
    for index, (start, number, title) in enumerate(starts):
        end = next((other for other, level, _ in starts[index + 1 :] if level <= number), len(lines))
        following = starts[index + 1][0] if index + 1 < len(starts) else len(lines)
        yield number, title, "\n".join(lines[start:end]).strip() + "\n", "\n".join(lines[start + 1 : following])


def _blocks(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield the rows of tables, items of lists and paragraphs, each with its names."""
    header: list[str] = []
    for block in re.split(r"\n\s*\n|\n(?=[-*] |\|)", text):
        if block.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", block.strip().strip("|"))]
            if not header:
                header = cells
            elif not set(block) <= set("|-: "):
                first = cells[0]
                keys = _names(first) if _ONLY_CODE.fullmatch(first) else []
                facts = [
                    f"- {name}: {cell}" if name else f"- {cell}"
                    for name, cell in zip(header[1:], cells[1:], strict=False)
                    if cell
                ]
                yield keys, "\n".join([first, "", *facts]) + "\n"
            continue
        header = []
        begins = re.match(r"[-*] (\*{0,2}`[^`]+`\*{0,2}(?:(?:, | or )`[^`]+`)*)[:,.]?[ :]", block)
        if block.strip():
            yield _names(begins[1]) if begins else [], block.strip() + "\n"


def _names(text: str) -> list[str]:
    """Return the code in a text that is a name: values with spaces or signs are none."""
    return [_plain(code) for code in _CODE.findall(text) if _NAME.fullmatch(code)]


def _plain(name: str) -> str:
    """Return a name as it is looked up, of a page without folder and suffix."""
    name = name.strip().lower()
    return Path(name).stem if name.endswith(".md") else name


def _slug(title: str) -> str:
    """Return a heading as it stands in an address."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", _text(title).lower())).strip("-")


def _text(title: str) -> str:
    return title.replace("`", "")


def _linked(text: str, own: str, stems: set[str]) -> str:
    """Return Markdown whose links to other pages are names to explain; those to pages of the site alone are words."""

    def link(match: re.Match[str]) -> str:
        words, address = match.groups()
        page, _, anchor = address.partition("#")
        stem = Path(page).stem or own
        if address.startswith(("http:", "https:")):
            return match[0]
        return f"{words} (`dataaudit explain {stem}{anchor and '#'}{anchor}`)" if stem in stems else words

    return _LINK.sub(link, text)


def _shown(found: Iterable[Section]) -> str:
    """Return sections as a terminal shows Markdown; elsewhere as text."""
    parts = [
        f"**{' > '.join(section.titles)}**\n\n{section.text}" if not section.text.startswith("#") else section.text
        for section in found
    ]
    text = "\n---\n\n".join(parts)
    if not sys.stdout.isatty():
        return text
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.capture() as captured:
        console.print(Markdown(text))
    return captured.get()


def _listed(known: dict[str, list[Section]], *, as_json: bool) -> str:
    """Return every name by page."""
    by_page: dict[str, list[str]] = {}
    for name, sections in known.items():
        if "#" not in name and not name.startswith(("a-", "the-")):
            by_page.setdefault(sections[0].page, []).append(name)
    if as_json:
        return t.as_json(by_page)
    return "".join(
        f"{page}\n"
        + textwrap.fill(", ".join(own), 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        + "\n"
        for page, own in by_page.items()
    )
