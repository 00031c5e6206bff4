"""Names and numbers in every medium: harmless, short enough, and never more certain than they are."""

import ast
import inspect
from pathlib import Path

import pytest

from dataaudit.base.render import line as line_module
from dataaudit.base.render.blocks import Prose, Section, Table, first, left_out, names, worst
from dataaudit.base.render.charts import label
from dataaudit.base.render.html import html
from dataaudit.base.render.line import PERCENT, Interval, Name, Number, Text, join, percent, say, share, spell
from dataaudit.base.render.markdown import markdown
from dataaudit.base.render.result import to_html

PACKAGE = Path(line_module.__file__).parents[2]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 %"), (1, "100 %"), (None, "-"), (0.213675, "21.4 %"), (0.05, "5.00 %"), (0.99999, "99.99 %"),
        (0.0012, "0.12 %"), (0.00028, "0.028 %"), (0.000001, "1e-4 %"),
    ],
)  # fmt: skip
def test_a_share_is_shown_in_percent_and_is_0_or_100_only_when_it_is(value, shown):
    """What is nearly all or nearly nothing does not read as all or nothing."""
    assert percent(value) == shown.replace(" %", "\xa0%")


def test_a_label_keeps_the_last_folder_and_the_file():
    """They tell shards apart."""
    shown = label("train/web/crawl-2026-10/part-00017.parquet")
    assert len(shown) <= 26
    assert shown == ".../craw...6-10/part-00017"
    assert label("web") == "web"


def test_names_are_made_harmless_and_bounded():
    """Controls become escapes; how much is left out is said."""
    assert spell(Name("a\x1b[31m\u202eb")) == "a\\x1b[31m\\u202eb"
    assert spell(Name("x" * 300)).endswith("... (180 more characters)")
    assert "\x1b" not in label("\x1b" * 300)


def test_one_item_is_not_left_out_alone():
    """A line that says that there is one more could be that one."""
    assert list(first([1, 2, 3], 2)) == [1, 2, 3]
    assert list(first([1, 2, 3, 4], 2)) == [1, 2]
    table = Table(title="", columns=names("n"), rows=(("a",),) * 4, noun="shard")
    assert left_out(table, 2) == "and 2 more shards"
    assert left_out(table, 4) == ""


def test_each_medium_spells_a_line_in_its_own_way():
    """The words are the same; a share is a ratio or percent, and a name is made harmless for where it stands."""
    line = say("{} of {} ({})", share(0.25), Name("<b>`x`|$y"), Interval(0.1, 0.5))
    assert spell(line) == "0.2500 of <b>`x`|$y (0.1000 to 0.5000)"
    assert spell(line, PERCENT) == "25.0\xa0% of <b>`x`|$y (10.0\xa0% to 50.0\xa0%)"
    assert html(line) == "25.0\xa0% of <bdi>&lt;b&gt;`x`|$y</bdi> (10.0\xa0% to 50.0\xa0%)"
    assert markdown(line) == "0.2500 of `<b>\\x60x\\x60\\x7c$y` (0.1000 to 0.5000)"
    shown = to_html(Section(id="s", title="t", blocks=(Prose(text=line),)))
    assert "&lt;b&gt;`x`|<span>$</span>y (0.1000 to 0.5000)" in shown


def test_what_has_no_number_is_a_dash_and_a_whole_number_a_count():
    assert spell(join("; ", [None, 1234567, share(None), Interval(None, None)])) == "-; 1,234,567; -; -"


def test_a_sentence_has_a_place_for_every_part():
    with pytest.raises(ValueError, match="1 places for 2 parts"):
        say("{}", 1, 2)


def test_the_worst_tone_stands_for_all():
    """Bad before warn before good."""
    assert worst(["good", "bad", "warn"]) == "bad"
    assert worst(["good", "", "warn"]) == "warn"
    assert worst([]) == ""


def test_no_part_of_a_line_is_written_as_python_writes_it():
    """A number or a name put into an f-string reads `Number(value=8.0, ...)`: `say` or `spell` is meant."""
    made = (Name, Number, Interval, Text)
    makers = {one.__name__ for one in made}
    for name, function in inspect.getmembers(line_module, inspect.isfunction):
        if inspect.signature(function, eval_str=True).return_annotation in made:
            makers.add(name)
    assert {"say", "share", "decimal"} <= makers
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if f"{line_module.__name__} import" not in source:
            continue
        nodes = list(ast.walk(ast.parse(source)))
        taken = {
            one.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module == line_module.__name__
            for one in node.names
        }
        for node in nodes:
            if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Call):
                called = node.value.func
                if isinstance(called, ast.Name) and called.id in makers & taken:
                    wrong.append(f"{path.name}:{node.lineno}: {called.id}")
    assert wrong == []
