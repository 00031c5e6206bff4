"""Encoding faults: compiled against plain Python, what is damaged and what only looks so, in many languages."""

import base64
import random

import pytest
from buffers import buffers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import examples, sample
from odd_shards import CLEAN, DAMAGED, documents, misread, mojibake
from reference import faults as twin
from sentences import SENTENCES

from dataaudit.scan.kernels.fault_markup import (
    BARE_TAGS,
    ENTITIES,
    GLUED_TAGS,
    OPEN_ENTITIES,
    OPEN_ESCAPES,
    PLAIN_ATTRIBUTES,
)
from dataaudit.scan.kernels.faults import KINDS, count_faults

NAMES = {
    "entities": {*ENTITIES.split()},
    "open": {*OPEN_ENTITIES.split()},
    "escapes": {*OPEN_ESCAPES.split()},
    "bare": {*BARE_TAGS.split()},
    "glued": {*GLUED_TAGS.split()},
    "plain": {*PLAIN_ATTRIBUTES.split()},
}
COLUMNS = (*KINDS, "lines", "markup_lines")
PIECES = [
    *"aZé\u00c3\u00c2\u00c4\u00c5\u00df\u00e2\u00e3\u00ef\u00f0\u00d0\u00d1",
    *"\u20ac\u2122\u201c\u2026\u0161\u017e\u0152\u00a9\u00a0\u00bb\u00b0\u00a1\u0178\u02dc\u0192\x80\x9d\x81",
    *"\x00\t\n\v\f\r \x1f\x7f\ufffd\ufffe\ufdd0\ufeff\U0001ffff\U0001f600<>&;/!?=\"'#x",
    *("amp", "#39", "#x41", "sum", "nbsp", "&amp;", "&#39;", "<b>", "</p>", "<p", " class=", "<br/>", "<!--", "<?xml"),
    *(
        "<!DOCTYPE", "<![CDATA[", "vector", "<title>", "</Foo.x:y-z>", "<a href=", "<x y='", "T" * 31, "int", " b",
        "\n ",
    ),
    *("0123456789abcdef" * 4, "Ab1/" * 16, "Ab1x" * 16, "A" * 64, "ab" * 40, "Q2" * 30, "x" * 1020),
    *(r"\n", r"\\n", r"\u00e9", r"\U0001f600", r"\xc3\xa9", r"\xe9", ".", "'", "`", "b'", "A", "E9", "[", "-", "?"),
    *("=C3=A9", "=E9", "=20", "=09\n", '=3D"', "a=\n", "x " * 35, "%20", "%C3%A9", "%e9", "/", "+AOk-", "+TipOZQ1A-"),
    *("&eacute", "&nbsp", "&amp ", " &lt\n", "&#246", "&#xe9", "ab", "\u201a", "\u0192", "\u00b3", "\u00ad" * 5),
    *"\u200b\u200c\u200d\u200e\u202e\u2060\ufe0f\U000e0041\U000e0101\U0001f3f4\u0e01\u05d0\u4e2d\ufff9\u206a",
    *"\u0420\u0421\u0413\u0432\u0402\u2122\u00a7\u251c\u2310\u0393\u00c7\u00d6\u0102\u221a\u00ef\u00f0\u00e8\u2500",
    *(mojibake(sign) for sign in "\u00e9\u2019\u0142\u043f\u4e2d\U0001f600\u00e0\u00cd"),
]  # fmt: skip
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=24).map("".join),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40),
    st.text(alphabet=st.characters(min_codepoint=0x80, max_codepoint=0xFF), max_size=20).map(mojibake),
)


def counted(*texts):
    """Return the counts of some documents."""
    return count_faults(*buffers(texts))


def kinds(text):
    """Return the kinds of faults that a text has."""
    return {kind for kind, size in zip(KINDS, counted(text)[0].tolist(), strict=False) if size}


@given(texts=st.lists(TEXTS, max_size=4))
@example(texts=["a\n\\nZ", "a\n&lt ", "\u00a9\ufe0f \u00ae\ufe0f #\ufe0f *\ufe0f 7\ufe0f", "\u00aa\ufe0f a\ufe0f"])
@example(texts=["was it%3Fyes", "mail%40it", "a%2Cb, c%3Ad"])
@example(
    texts=[
        " class=&nbsp", "p = &nbsp;", "=09\n", "=20", ".=20\n", "\xad\xad\xad\xad\xad\xc3\xe4\xb8\xad",
        "\xad\xad\xad\xad\xad\xad",
    ]
)  # fmt: skip
@example(texts=["<", "&", "<p", "\u00c3", "\u00e2\u20ac", "</", "<!", "&#", "&#x", "<a ", "<a b", "<a b=", "<a/"])
@example(
    texts=[
        "a <b\n\n class='x'\n> c\n<p>\n  <br> \n text<br>",
        "<a href=" + "x" * 1015 + ">",
        "<a href=" + "x" * 1016 + ">",
    ]
)
@example(
    texts=[
        "<" + "n" * 32 + ">",
        "</" + "n" * 32 + ">",
        "</" + "n" * 33 + ">",
        "</n" + " " * 32 + ">",
        "</n" + " " * 33 + ">",
    ]
)
@settings(max_examples=examples(2000))
def test_counts_are_those_of_plain_python(texts):
    expected = [[twin.fault_counts(text, NAMES)[name] for name in COLUMNS] for text in texts]
    assert counted(*texts).tolist() == expected


@pytest.mark.parametrize("kind", sample([*DAMAGED, *CLEAN], 6))
def test_counts_of_whole_documents_are_those_of_plain_python(kind):
    texts = documents(kind, "kernel", 4)
    assert counted(*texts).tolist() == [[twin.fault_counts(text, NAMES)[name] for name in COLUMNS] for text in texts]


@pytest.mark.parametrize("language", SENTENCES)
def test_damage_is_found_in_every_language_and_clean_text_has_none(language):
    """Decoded wrongly once or twice; sentences of plain ASCII cannot be damaged so."""
    for text in SENTENCES[language]:
        assert kinds(text) == set()
        for times in (1, 2):
            damaged = mojibake(text, times)
            assert kinds(damaged) == ({"mojibake"} if damaged != text else set()), text


CODE_PAGES = {
    "cp1251": "ar bn de el es fr he hi ja ka ko pl ru th tr vi zh",
    "cp1250": "ar bn de el es fr he hi ja ka ko pl ru th tr vi zh",
    "koi8-r": "ar bn de el es fr he hi ja ka ko pl ru th tr vi zh",
    "cp437": "ar bn de el es fr he hi ja ka ko pl ru th tr vi zh",
    "cp850": "ar bn de el es fr he hi ja ka ko pl ru th tr vi zh",
    "mac-roman": "ar bn de el es fr he hi ja ka ko pl ru th tr vi zh",
    "cp1253": "ar de el es fr he ru th",
    "cp1255": "ar de el es fr he ru th",
    "cp1256": "ar de el es fr he ru th",
    "cp874": "ar el he ru th",
}
"""Code pages that UTF-8 is read as, and languages of which all sentences together are found."""
NOT_TWICE = {"cp437": ("bn", "hi", "th"), "cp1255": ("de", "es", "fr")}
"""What is lost the second time: sequences of boxes alone, and bytes that the code page does not have."""
LEGACY = {
    **dict.fromkeys(("cp1251", "koi8-r", "cp866", "iso8859-5", "mac-cyrillic"), "ru"),
    **dict.fromkeys(("gbk", "big5"), "zh"),
    **dict.fromkeys(("euc-jp", "shift-jis"), "ja"),
    **dict.fromkeys(("euc-kr", "cp949"), "ko"),
    **dict.fromkeys(("cp437", "cp850"), "es"),
    **dict(zip(("cp1253", "cp1255", "cp1256", "cp874", "cp1250"), ("el", "he", "ar", "th", "pl"), strict=True)),
}
"""Encodings whose text is read as Latin-1 or Windows-1252, and a language."""


@pytest.mark.parametrize("page", CODE_PAGES)
def test_utf_8_in_another_code_page_is_mojibake(page):
    """As Python's own codecs decode it, once and twice."""
    for language in CODE_PAGES[page].split():
        once = misread(" ".join(SENTENCES[language]), "utf-8", page)
        assert "mojibake" in kinds(once), language
        assert language in NOT_TWICE.get(page, ()) or "mojibake" in kinds(misread(once, "utf-8", page)), language


@pytest.mark.parametrize("read", ["latin-1", "cp1252"])
@pytest.mark.parametrize("page", LEGACY)
def test_text_of_a_code_page_in_latin_1_is_found(page, read):
    """Bytes that Latin-1 reads as control characters are these."""
    assert kinds(misread(" ".join(SENTENCES[LEGACY[page]]), page, read)) & {"mojibake", "control"}


def test_utf_16_in_latin_1_is_control_characters():
    assert all("control" in kinds(misread(text[0], "utf-16", "latin-1")) for text in SENTENCES.values())


CLEAN_LINES = [
    "Er sagte: \u201eDas macht Spa\u00df\u201c \u2013 GRO\u00df\u2026 \u00dc\u201d",
    "\u201cMANH\u00c3\u201d, \u00abCAF\u00c9\u00bb \u00c9\u2026 N\u00c3O, voc\u00ea\u2026\u201d, IRM\u00c3\u00a0!",
    "\u00da\u017easn\u00fd z\u00e1pas, \u00c1\u0161ov, tr\u00eas\u2122",
    "5\u00a0\u00c5\u201312\u00a0\u00c5, 1 \u00c5\u00b2, \u00d7\u201d",
    "x = &sum; y = &value; a?b=1&lt=2&amp=3 R&D; AT&T; foo(&part;",
    "vector<int> List<b> Map<String, Object> <stdio.h> <jo@example.org> <https://a.b/c> a <b and c> d < p >",
    "usage: tool <input> [<title>] <source> <table> template<class T=int> if (i<n && n>2) x<y>z",
    "e3b0c44298fc1c149afbf4c8996fb924  d41d8cd98f00b204e9800998ecf8427e",
    "/usr/share/doc/packages/library/reference/manual/chapters/introduction/index1.html",
    "AbstractSingletonProxyFactoryBeanConfigurationManagerProviderImplementationHelper2",
    "see L</new> and L</SYNOPSIS>",
    "https://github.com/python/cpython/blob/d27e2f4d118e7a9909b6a3e5da06c5ff95806a85/Lib/_pyio.py#L525",
    "-" * 80 + "0" * 80 + " " + "ACGT" * 30 + " " + "12345678" * 12,
    "\t tab \f page\r\n",
    "10 kcal/mol\u00c5\u00b2, 5 kJ/(mol\u00c5\u00b3), 2 e\u00c5\u00b2, n\u00c5\u2013m\u00c5",
    "n\u00c5\u2014the, mol\u00c5\u00b7K, 2 e\u00c5\u2019s",
    "n\u00c5\u201d, \u201e3 e\u00c5\u201c, n\u00c5\u2026, e\u00c5\u00b10.2, e\u00c5\u00a0and e\u00c5\u00b0",
    "int *p = &trade;\n  return &copy;  // a comment\n  a[i] = (&para;\n  f = x | &cent; }\n  *q = &yen;",
    "/**\n * {@code List&lt;T&gt;} of R&amp;D\n */\n\t/// a &lt; b\n'''&amp;\n//! &gt;\n  /* &quot; */",
    "".join(f"  --hash=sha256:{random.Random(size).randbytes(size).hex()} \\\n" for size in (16, 20, 28, 32, 48, 64)),
    "".join(f"{random.Random(size).randbytes(size).hex()}  a.tar\n" for size in (16, 20, 28, 32, 48, 64)),
    random.Random(9).randbytes(64).hex().upper() + " 0x" + random.Random(8).randbytes(32).hex().upper(),
    *(
        f'"integrity": "sha{8 * size}{sign}{base64.b64encode(random.Random(size).randbytes(size)).decode()}"'
        for size in (48, 64)
        for sign in "-:="
    ),
]


@pytest.mark.parametrize("text", CLEAN_LINES)
def test_what_text_may_have_is_no_fault(text):
    """Capitals before quotes, pointers, generics, placeholders, paths, sequences."""
    assert kinds(text) == set()


DAMAGED_LINES = {
    "mojibake": (
        "caf\u00c3\u00a9", "M\u00c3\u00a1laga", "don\u00e2\u20ac\u2122t", "20 \u00c2\u00b0C", "DESCRIPCI\u00c3\x93N",
        "nh\u00e1\u00bb\x8f", "by\u00c5\u201a", "\u00ef\u00bb\u00bfTitle", "\u00f0\u0178\u02dc\u20ac",
        "caf\u0413\u00a9", "it\u0432\u0402\u2122s", "caf\u251c\u2310", "it\u0393\u00c7\u00d6s",
        "it\u00d4\u00c7\u00d6s", "caf\u221a\u00a9", "caf\u0102\u00a9",
        "\u00cf\u00f0\u00e8\u00e2\u00e5\u00f2 \u00ec\u00e8\u00f0", "mo\u00b3dy", "ma\u00a4ana", "pr\u201asent",
        "c\u00c5\u201cur", "ko\u00c5\u201e", "m\u00c5\u00b3s",
    ),
    "replacement": (
        "ca\ufffd",
    ),
    "control": (
        "a\x00b", "\x93quoted\x94", "a\ufffe", "\x1b[0m",
    ),
    "entities": (
        "R&amp;D", "it&#39;s", "it&#X27;s", "a&nbsp;b", "x = &quot;a&quot;", "(&copy; 2024)", "f(a, &amp;x)",
        "* a &amp; b", "K&#246ln", "M&uumlnchen", "a&nbspb", "R&amp D", "if a &lt b",
    ),
    "tags": (
        "a<br>b", "<P>Text</P>", '<div class="x">', "<td width=3>", "</para>", '<path d="M0">', "<hr />", "<!-- note",
        "<?xml version",
    ),
    "base64": (
        base64.b64encode(random.Random(1).randbytes(48)).decode(), random.Random(2).randbytes(33).hex(),
    ),
    "escapes": (
        r"The end.\nNext", r"red,\n\nblue", r"caf\u00e9", r"\u4e2d\u6587\u5b57", r"smile \U0001f600s", r"caf\xc3\xa9",
        r"pr\xe9sent", r"Hello.\\nWorld", r'"He said.\nThen"', r"b'caf\xc3\xa9'", "caf=C3=A9", "pr=E9sent",
        "The end.=20\nNext", 'a href=3D"x"', "x" * 60 + " the line goes=\non", "Hello%20World,%20it",
        "caf%C3%A9 au lait", "pr%e9sent", "caf+AOk- au lait", "+BD8EQAQ4BDIENQRC +BDwEOARA-",
    ),
    "invisible": (
        "wo\u200brd", "wo\u200cr\u200dd", "wo\u202er", "a \u200eb", "word\ufeff", "a\ufe0f", "\u2764\ufe0f\ufe0f",
        "a\U000e0101", "a\U000e0041\U000e0042", "wo\u2060rd", "Dampf\u00adschiff" * 5,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kind"), [(text, kind) for kind, texts in DAMAGED_LINES.items() for text in texts], ids=ascii
)
def test_each_fault_is_of_its_kind(text, kind):
    assert kinds(text) == {kind}


def test_random_base64_is_found_in_lines_of_64_and_76():
    """Of 1,000 lines of each length that random bytes give."""
    generator = random.Random(3)
    for size in (48, 57):
        lines = [base64.b64encode(generator.randbytes(size)).decode() for _ in range(1000)]
        assert sum(kinds(line) == {"base64"} for line in lines) >= 985
    lines = [generator.randbytes(40).hex() for _ in range(1000)]
    assert sum(kinds(line) == {"base64"} for line in lines) >= 985


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('/// <summary>\n  /// Adds.\n\t/// </summary>\n/// <param name="a">One.</param>\nint Add(int a);', 0),
        ("/**\n * <p>\n * A list<br>\n */\n''' <summary>\n/* </p> */", 0),
        ("the <p> element, and <i>\n<b> is bold\n<u>, <i>: lines\nsee (<p>)\n`<i>`\n- <b>", 0),
        ("usage: tool <p> <i>\n       tool -v <b>", 0),
        ("<p>Text\n<li>Item\nline<br>\n<ul>\n<b>bold</b>\n<p> Text</p>\n* <a href='x'>y</a>\nend.<br>", 8),
        ("<ul><li>\nText <p class='x'>", 2),
    ],
)
def test_lines_of_markup_are_no_comments_and_no_words_about_tags(text, lines):
    """Comments that document code; elements that prose or a usage line names."""
    assert counted(text)[0, COLUMNS.index("markup_lines")] == lines
    assert twin.fault_counts(text, NAMES)["markup_lines"] == lines
