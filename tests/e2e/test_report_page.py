"""The report in a real browser: a hostile corpus does nothing, charts are drawn, the table works, nothing is asked."""

import dataclasses
import functools
import itertools
import time

import numpy as np
import pyarrow as pa
import pytest
from browser import DRAWN, complaints_of, has_dialog, opened, requests_of, resized, waited
from hostile_manifest import DEMO, PAYLOADS, make_hostile
from made_manifest import make, shard

from dataaudit.base.render.html import render
from dataaudit.decide.diff.compare import load_pair
from dataaudit.decide.gate.policy import parse_policy
from dataaudit.decide.gate.run import judge
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.present.report.page import page_of

pytestmark = [pytest.mark.judges, pytest.mark.usefixtures("odd_numbers")]

ROWS = """
const rows = document.querySelectorAll("#all-shards tbody tr:not(.space)");
return [...rows].map((row) => [...row.cells].map((cell) => cell.innerText));
"""
CANVASES = f"""{DRAWN}
return [...document.querySelectorAll(".chart")].map((one) => [one.id, Math.max(0, ...find(one).map(inked))]);
"""
POLICY = """
policy: hostile
rules:
  - {name: leak, metric: train_val_overlap, stat: span, unit: ratio, scope: {per: set}, budget: 0}
  - {name: copies, metric: near_dup_rate, stat: rate, unit: ratio, scope: {per: source}, budget: 0.1, severity: warn}
  - {name: far, metric: bytes_per_token, stat: ratio, unit: bytes/token, scope: {per: shard}, robust_sd: 1}
  - {name: personal, metric: pii_hit_rate, stat: hits, unit: hits per 1M tokens, scope: {per: entity}, budget: 1}
"""


def value_of(browser, expression):
    """Return what an expression of JavaScript is in the page."""
    return browser.execute_script(f"return {expression}")


def wait_for(condition, seconds=5):
    """Wait until a call returns something true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
    return value


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report of a corpus with hostile names, judged by a policy and compared with the same without them."""
    folder = tmp_path_factory.mktemp("report")
    manifest = load_manifest(make_hostile(folder / "manifest"))
    make_hostile(folder / "plain", payloads=False)
    verdict = judge(manifest, parse_policy(POLICY, where="policy"), baseline=load_manifest(folder / "plain"))
    difference = load_pair(folder / "plain", manifest)
    path = folder / "report.html"
    path.write_text(render(page_of(manifest, verdict, difference)), encoding="utf-8")
    return path


@pytest.fixture
def sized(browser):
    """The browser, whose window a test may resize."""
    yield browser
    resized(browser, 1200)


@pytest.fixture
def shown(browser, page):
    """The page, opened anew."""
    opened(browser, page)
    return browser


def test_a_hostile_corpus_opens_no_dialog_asks_nothing_and_leaves_the_console_empty(browser, page):
    """Every name of the manifest is hostile; nothing of it runs, is fetched, or breaks the policy of the page."""
    complaints_of(browser), requests_of(browser)
    opened(browser, page)
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    time.sleep(0.3)
    assert not has_dialog(browser)
    assert requests_of(browser) == [page.as_uri()]
    assert complaints_of(browser) == []
    assert value_of(browser, "performance.getEntriesByType('resource').map((one) => one.name)") == []
    assert value_of(browser, "document.querySelectorAll('main img, main iframe, main script, main svg').length") == 0


def test_hostile_names_are_shown_and_not_obeyed(shown):
    text = shown.execute_script("return document.body.textContent")
    for expected in ("<script>alert(", "onerror=alert(3)", "{{ 7*7 }}", "\\x1b[31mred", "\\u202egnp.exe", "\\u2028"):
        assert expected in text, expected
    assert not set(text) & {"\x1b", "\x07", "\u202e", "\u2066", "\u2028"}


def test_every_chart_is_drawn_and_says_what_it_shows(shown):
    """Each has ink on its canvas, a name for screen readers, and a table beside it."""
    drawn = dict(shown.execute_script(CANVASES))
    assert {
        "chart-mixture", "chart-languages", "chart-lengths", "chart-drift", "chart-matrix", "chart-leaks",
        "chart-shards",
    } <= drawn.keys()  # fmt: skip
    assert all(ink > 500 for ink in drawn.values()), drawn
    for chart in shown.find_elements("css selector", ".chart"):
        assert chart.get_attribute("role") == "img"
        assert len(chart.get_attribute("aria-label")) > 10
        assert chart.find_elements("xpath", "..//table")


def test_a_tooltip_shows_a_hostile_name_as_text(shown):
    """Bokeh's placeholders in a name are not filled in, and markup in it is not parsed."""
    from selenium.webdriver import ActionChains

    chart = shown.find_element("id", "chart-mixture")
    shown.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", chart)
    tip = """
    const texts = [];
    const walk = (node) => {
      for (const one of [...(node.shadowRoot ? node.shadowRoot.children : []), ...node.children]) {
        if (one.className && String(one.className).includes("bk-Tooltip")) {
          texts.push((one.shadowRoot ?? one).textContent);
          texts.push(`elements ${(one.shadowRoot ?? one).querySelectorAll("img, script, b, iframe").length}`);
        }
        walk(one);
      }
    };
    walk(document.documentElement);
    return texts.length ? texts : null;
    """
    for offset in (-64, -38, -12):
        ActionChains(shown).move_to_element_with_offset(chart, -60, offset).perform()
        found = waited(shown, tip, 5)
        assert "%" in found[0]
        assert "elements 0" in found
    assert not has_dialog(shown)
    assert complaints_of(shown) == []


def test_the_rows_of_the_script_are_those_written_without_it(shown, page):
    """The table reads the same with JavaScript and without."""
    rows = shown.execute_script(ROWS)
    shown.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    shown.get(page.as_uri())
    try:
        static = [
            [cell.get_attribute("textContent") for cell in row.find_elements("css selector", "td")]
            for row in shown.find_elements("css selector", "#all-shards tbody tr")
        ]
        chart = shown.find_element("css selector", "#chart-mixture")
        assert not chart.is_displayed()
        assert shown.find_element("css selector", "#mixture table").is_displayed()
    finally:
        shown.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert len(rows) == 19
    tidy = [[" ".join(cell.split()) for cell in row] for row in rows]
    marks = ("\u2715 ", "! ", "\u2715", "!")
    for row in tidy:
        row[1] = next((row[1].removeprefix(mark) for mark in marks if row[1].startswith(mark)), row[1])
    assert tidy == [[" ".join(cell.split()) for cell in row] for row in static]


def test_the_filters_of_the_table_work(shown):
    """By text, by split, by status, and by what stands out; the number of rows is said."""
    field = shown.find_element("id", "filter-text")
    field.send_keys("part-003")
    wait_for(lambda: shown.find_element("id", "filter-count").text == "2 of 19 shards")
    assert all("part-003" in row[1] for row in shown.execute_script(ROWS))
    field.clear()
    field.send_keys("alert(")
    wait_for(lambda: shown.find_element("id", "filter-count").text not in {"2 of 19 shards", "19 of 19 shards"})
    shown.execute_script(
        "const f = document.getElementById('filter-text'); f.value = ''; f.dispatchEvent(new Event('input'))"
    )
    wait_for(lambda: shown.find_element("id", "filter-count").text == "19 of 19 shards")
    shown.find_element("id", "filter-odd").click()
    wait_for(lambda: shown.find_element("id", "filter-count").text != "19 of 19 shards")
    assert all(row[-1] for row in shown.execute_script(ROWS))
    shown.execute_script(
        "const s = document.getElementById('filter-status');"
        "s.value = [...s.options].find((o) => o.text === 'quarantined').value; s.dispatchEvent(new Event('input'))"
    )
    wait_for(lambda: shown.find_element("id", "filter-count").text == "1 of 19 shards")


def test_the_heads_of_the_table_sort_by_keyboard_too(shown):
    """A head sorts numbers downwards first, then upwards, and says so; what has no number comes last."""
    from selenium.webdriver.common.keys import Keys

    heads = [head.text for head in shown.find_elements("css selector", "#all-shards th")]
    index = heads.index("bytes per token")
    button = shown.find_elements("css selector", "#all-shards th button")[index]
    for way, order in (("descending", -1), ("ascending", 1)):
        button.send_keys(Keys.ENTER)
        head = shown.find_elements("css selector", "#all-shards th")[index]
        assert head.get_attribute("aria-sort") == way
        cells = [row[index] for row in shown.execute_script(ROWS)]
        values = [float(one) for one in cells if one != "-"]
        assert values == sorted(values, key=lambda one: order * one)
        assert cells[-1] == "-"


def test_the_theme_changes_at_once_and_charts_follow(shown):
    """The button names the other theme; ground and charts change, and nothing complains."""
    complaints_of(shown)
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = shown.execute_script(ground)
    shown.find_element("id", "theme").click()
    waited(shown, "return document.documentElement.dataset.charts === 'dark'")
    assert shown.execute_script(ground) != before
    assert shown.find_element("id", "theme").text == "Light theme"
    assert all(ink > 500 for _, ink in shown.execute_script(CANVASES))
    assert complaints_of(shown) == []


def test_headings_are_in_order_and_everything_has_a_name(shown):
    """One h1, no level left out, labels for all fields, a landmark for every part, no id twice."""
    levels = value_of(shown, "[...document.querySelectorAll('h1,h2,h3,h4')].map((one) => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert value_of(shown, "[...document.querySelectorAll('input,select')].every((one) => one.labels.length)")
    ids = value_of(shown, "[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    targets = value_of(shown, "[...document.querySelectorAll('a[href]')].map((one) => one.getAttribute('href'))")
    assert all(target[1:] in ids for target in targets if target.startswith("#"))
    assert value_of(shown, "['header', 'nav', 'main', 'footer'].every((one) => document.querySelector(one))")
    assert shown.switch_to.active_element.tag_name == "body"
    from selenium.webdriver.common.keys import Keys

    shown.find_element("css selector", "body").send_keys(Keys.TAB)
    assert shown.switch_to.active_element.get_attribute("class") == "skip"


def test_a_narrow_window_does_not_scroll_sideways(sized, page):
    resized(sized, 400)
    opened(sized, page)
    assert value_of(sized, "[window.innerWidth, document.documentElement.scrollWidth <= 400]") == [400, True]


CARDS = """
const open = (one) => { one.open = true; };
document.querySelectorAll("details").forEach(open);
const wide = [...document.querySelectorAll(".wrap, .scroll")].filter((one) => one.scrollWidth > one.clientWidth);
const unlabelled = [], astray = [];
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells].map((one) => one.textContent);
  for (const row of table.tBodies[0].rows) {
    if (row.className === "space") continue;
    const cells = [...row.cells].filter((one) => one.colSpan === 1);
    cells.forEach((one, at) => {
      const label = getComputedStyle(one, "::before").content;
      if (one.dataset.label !== heads[at] || (heads[at] && label === "none")) unlabelled.push([heads[at], label]);
      const box = one.getBoundingClientRect();
      if (box.width && (box.left < 0 || box.right > innerWidth)) astray.push(heads[at]);
    });
    const tops = cells.filter((one) => one.offsetHeight).map((one) => one.getBoundingClientRect().top);
    if (new Set(tops).size !== tops.length) astray.push(`beside each other: ${heads}`);
    if (row.getAttribute("role") !== "row") unlabelled.push("row");
  }
}
return [innerWidth, wide.map((one) => one.ariaLabel), unlabelled, astray];
"""


@pytest.mark.parametrize("width", [390, 480])
def test_on_a_telephone_each_row_is_a_card(sized, page, width):
    """Every value below the one before, with what its column is called; no table scrolls sideways."""
    resized(sized, width)
    opened(sized, page)
    assert sized.execute_script(CARDS) == [width, [], [], []]


def test_cards_of_all_shards_scroll_and_sort(sized, page):
    """Each has the height that the script reckons with, and a column sorts as it does elsewhere."""
    resized(sized, 390)
    opened(sized, page)
    rows = "return [...document.querySelectorAll('#all-shards tbody tr:not(.space)')]"
    heights = sized.execute_script(f"{rows}.map((one) => one.offsetHeight)")
    heads = sized.execute_script("return document.querySelectorAll('#all-shards th').length")
    assert set(heights) == {22 * (heads + 3) + 17}
    sized.execute_script("document.querySelectorAll('#all-shards th button')[0].click()")
    first = sized.execute_script(f"{rows}.map((one) => Number(one.cells[0].textContent.replaceAll(',', '')))")
    assert first == sorted(first, reverse=first[0] != 0)


def test_the_tables_of_rules_and_metrics_fit_without_a_scrollbar_of_their_own(tmp_path, sized):
    """At 1280 and 700 pixels, with intervals and long names of metrics, and a word is not broken within."""
    stats = ("concatenated_8192", "span_without_common", "within_split_rate", "validated_documents")
    numbers = {"value": 0.1, "low": 0.08, "high": 0.123, "confidence": 0.95, "method": "estimated", "n": 100}
    one_of = functools.partial(Metric, metric="near_dup_component_rate", unit="ratio", denominator=100, **numbers)
    scopes = [Scope(source=source) for source in ("code", "changes", "encyclopedia")]
    held = [one_of(stat=stat, scope=scope) for stat in stats for scope in scopes]
    changed = [dataclasses.replace(one, value=0.5, low=0.412, high=0.567) for one in held]
    make(tmp_path / "old", [shard("a")], metrics=held)
    make(tmp_path / "new", [shard("a")], metrics=changed)
    policy = parse_policy(
        "policy: p\nrules:\n  - {name: near-duplicates-of-sources, metric: near_dup_component_rate,"
        " stat: within_split_rate, unit: ratio, scope: {per: source}, change: 0.02}\n",
        where="policy",
    )
    manifest = load_manifest(tmp_path / "new")
    verdict = judge(manifest, policy, baseline=load_manifest(tmp_path / "old"))
    path = tmp_path / "report.html"
    page = page_of(manifest, verdict, load_pair(tmp_path / "old", manifest))
    path.write_text(render(page), encoding="utf-8")
    for width in (1280, 700):
        resized(sized, width)
        opened(sized, path)
        assert sized.execute_script("return window.innerWidth") == width
        wide = sized.execute_script(
            "for (const one of document.querySelectorAll('details')) one.open = true;"
            "return [...document.querySelectorAll('#verdict .wrap, #changes .wrap')]"
            ".filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"
        )
        assert wide == []
        assert "near_<wbr>dup_<wbr>component_<wbr>rate" in sized.page_source


def test_print_opens_what_is_folded_and_keeps_the_charts(shown):
    """All sections are on paper; the table of shards stands without its frame."""
    import base64

    pdf = base64.b64decode(shown.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type /Page/") > 3
    closed = shown.execute_script("return document.querySelectorAll('details:not([open])').length")
    assert closed > 0


def test_a_hundred_thousand_shards_fit_in_five_megabytes_and_can_be_searched(tmp_path, browser):
    """The file stays small, opens without a complaint, and finds one shard of all."""
    number = 100_000
    manifest = load_manifest(make_large(tmp_path / "manifest", number))
    path = tmp_path / "report.html"
    path.write_text(render(page_of(manifest)), encoding="utf-8")
    assert path.stat().st_size < 5_000_000
    complaints_of(browser)
    opened(browser, path)
    assert browser.find_element("id", "filter-count").text == "100,000 of 100,000 shards"
    assert browser.execute_script("return document.querySelectorAll('#all-shards tbody tr').length") < 100
    browser.execute_script("document.querySelector('.scroll').scrollTop = 1e9")
    wait_for(lambda: any(row[0] == "99,999" for row in browser.execute_script(ROWS)))
    browser.find_element("id", "filter-text").send_keys("part-77777.")
    wait_for(lambda: browser.find_element("id", "filter-count").text == "1 of 100,000 shards")
    assert browser.execute_script(ROWS)[0][0] == "77,777"
    assert complaints_of(browser) == []


def make_large(folder, number):
    """Publish a manifest of many shards whose numbers all differ."""
    make(folder, [shard("part-00000.parquet")])
    small = load_manifest(folder)
    random = np.random.default_rng(0)
    row = small.table("shards")
    columns = {name: pa.array(row[name].to_pylist() * number, row[name].type) for name in row.column_names}
    columns |= {
        "shard": pa.array(np.arange(number), pa.int32()),
        "uri": pa.array([f"part-{one:05d}.parquet" for one in range(number)]),
        "documents": pa.array(random.integers(900, 1100, number)),
        "tokens": pa.array(random.integers(400_000, 600_000, number)),
        "size": pa.array(random.integers(10**6, 3 * 10**6, number)),
        "bytes_per_token": pa.array(random.normal(4, 0.05, number)),
    }
    for name in ("exact_dup_rate", "near_dup_rate", "repeat_token_share", "filter_reject_rate", "toxicity_screen"):
        columns[name] = pa.array(random.random(number) * 0.1)
    from dataaudit.manifest.publish import prepare_tables, publish, table_records
    from dataaudit.manifest.tables import TABLES

    tables = {name: small.table(name) for name in TABLES if name != "shards"}
    prepared = prepare_tables({**tables, "shards": pa.table(columns, schema=TABLES["shards"].schema)})
    counted = small.core.ledger.shards.model_copy(update={"planned": number, "read": number})
    ledger = small.core.ledger.model_copy(update={"shards": counted})
    core = small.core.model_copy(update={"tables": table_records(prepared), "ledger": ledger})
    publish(folder, core, small.run, prepared)
    return folder


def test_the_payloads_cover_what_a_page_can_be_attacked_with():
    """The list is the test's own promise."""
    joined = "".join(PAYLOADS)
    assert all(part in joined for part in ("<script", "</script", "onerror", "\x1b", "\u202e", "=cmd", "$$", "\u2028"))
    assert DEMO.is_dir()
    assert dataclasses.is_dataclass(page_of(load_manifest(DEMO)))
