"""The page of a run, and the site, in a real browser: what grows is followed, all fits, nothing is fetched."""

import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from browser import DRAWN, complaints_of, requests_of, resized, started, waited

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "training"))
from test_followed_run import Log, healthy, viewed

from dataaudit.base.render.html import render
from dataaudit.live.incidents import FOLDER, acknowledged
from dataaudit.live.watch import WatchProcess
from dataaudit.training.pages.live_page import live_page
from dataaudit.training.pages.run_view import RunView
from dataaudit.training.pages.serving import serve

pytest.importorskip("uvicorn", reason="needs the extra `serve`")
pytestmark = pytest.mark.judges
HEADLINE = "return document.getElementById('headline').textContent"
BLANK = (
    DRAWN
    + "return [...document.querySelectorAll('.chart')].filter((one) => !find(one).some(inked)).map((one) => one.id)"
)


SPIED = """
const own = CanvasRenderingContext2D.prototype.fillText;
window.texts = [];
CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { texts.push(text); own.call(this, text, ...at); };
"""
LIGHTNESS = """
return [...document.querySelectorAll(".chart")].map((one) => one.nextSibling).map((copy) => {
  const data = copy.getContext("2d").getImageData(0, 0, copy.width, copy.height).data;
  let [sum, number] = [0, 0];
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] > 250) { sum += (data[at] + data[at + 1] + data[at + 2]) / 3; number += 1; }
  return [inked(copy), sum / number];
});
"""


@pytest.fixture
def served(tmp_path, browser):
    """A run that trains, its page open in the browser; its log, link, token and view."""
    from dataaudit.training.pages import serving

    log = Log(tmp_path / "run").steps(healthy(100), grad_global_norm=1.0, step_time=0.5).flush()
    judge = WatchProcess(tmp_path / "run", None, log=None, send=False, interval=0.4)
    view = RunView(tmp_path / "run", watch=judge)
    servers, lines, up = [], [], threading.Event()
    import uvicorn

    made = uvicorn.Server

    class Kept(made):
        def __init__(self, config):
            super().__init__(config)
            servers.append(self)
            up.set()

        def install_signal_handlers(self):
            """A thread has none."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn, "Server", Kept)
        patch.setattr(serving, "_BEAT_SECONDS", 1.0)
        own = {"port": 0, "interval": 0.4, "show": lines.append}
        thread = threading.Thread(target=lambda: serve(view, **own), daemon=True)
        thread.start()
        assert up.wait(20)
    link, token = lines[0].strip(), lines[1].split()[-1]
    complaints_of(browser), requests_of(browser)
    browser.get(link)
    waited(browser, "return document.documentElement.dataset.charts && document.getElementById('main').dataset.taken")
    yield log, link, token, view
    browser.get("about:blank")
    servers[0].should_exit = True
    thread.join(20)
    judge.close()


def test_it_follows_the_log_and_asks_its_own_server_alone(served, browser):
    """New steps and an incident appear without a reload; nothing complains, nothing else is asked."""
    log, link, token, _ = served
    assert token not in browser.current_url
    assert browser.execute_script("return document.getElementById('link').textContent") == "live"
    assert browser.execute_script(BLANK) == []
    browser.execute_script("document.querySelector('#icu summary').click()")
    browser.execute_script("window.kept = true")
    log.steps(healthy(20, seed=2), grad_global_norm=1.0, step_time=0.5).flush()
    waited(browser, "return document.querySelector('.figures dd').textContent.includes('120')")
    log.steps([math.nan]).flush()
    waited(browser, f"{HEADLINE}.includes('SEV0: loss not finite')", 60)
    assert browser.execute_script("return document.querySelector('#icu details').open")
    assert browser.execute_script("return window.kept")
    waited(browser, BLANK.replace("return [", "return ![").replace(".map((one) => one.id)", ".length"), 60)
    assert complaints_of(browser) == []
    origin = link.partition("/?")[0]
    assert all(url.startswith(origin) for url in requests_of(browser))


def test_a_run_that_was_killed_and_resumes_is_followed(served, browser):
    """Without a reload: the steps of the new start stand in place of those that it does again."""
    log, *_ = served
    log.steps(healthy(20, seed=2), grad_global_norm=1.0).flush()  # the last that it writes: nothing is closed
    waited(browser, "return document.querySelector('.figures dd').textContent.includes('120')")
    again = Log(log.folder, first=91).steps(healthy(10, seed=3), grad_global_norm=1.0).flush()
    waited(browser, "return document.querySelector('.figures dd').textContent.includes('100')", 60)
    again.steps(healthy(60, seed=4), grad_global_norm=1.0).flush()
    waited(browser, "return document.querySelector('.figures dd').textContent.includes('160')", 60)
    waited(browser, "return document.getElementById('events').textContent.includes('resumed')")
    assert complaints_of(browser) == []


def test_an_incident_is_acknowledged_from_the_page(served, browser):
    """With the token alone; then it is no longer what stands first."""
    log, _, token, view = served
    log.steps([math.nan]).flush()
    waited(browser, "return document.querySelector('#alerts button.ack')", 60)
    browser.execute_script("document.querySelector('#alerts button.ack').click()")
    for name, value in (("who", "ana"), ("note", "back to step 90"), ("token", "wrong")):
        browser.find_element("css selector", f"#alerts form.ack [name={name}]").send_keys(value)
    browser.find_element("css selector", "#alerts form.ack button").click()
    said = "return document.querySelector('#alerts form.ack output').textContent"
    waited(browser, f"{said} === 'That is not the token that the terminal shows.'")
    field = browser.find_element("css selector", "#alerts form.ack [name=token]")
    field.clear()
    field.send_keys(token)
    browser.find_element("css selector", "#alerts form.ack button").click()
    browser.execute_script("document.activeElement.blur()")
    waited(browser, f"{HEADLINE.replace('return ', 'return !')}.includes('open')", 60)
    [incident] = view.incidents()
    assert acknowledged(view.tiles.folder / FOLDER / incident.id).who == "ana"
    assert "Acknowledged by" in browser.execute_script("return document.getElementById('alerts').textContent")


@pytest.mark.parametrize("width", [1200, 390])
def test_it_fits_its_window(served, browser, width):
    """Nothing is wider than the window, and every chart is drawn; the newest steps alone are a choice away."""
    resized(browser, width)
    try:
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        browser.execute_script(
            "const s = document.getElementById('newest'); s.value = '100'; s.dispatchEvent(new Event('change'))"
        )
        waited(browser, "return document.getElementById('link').textContent === 'live'")
        assert browser.execute_script(BLANK) == []
    finally:
        resized(browser, 1200)


def test_charts_are_on_paper(tmp_path, browser):
    """A page of two runs, printed before anything was scrolled: copies with ink and names, dark ones as light ones."""
    for name in ("new", "old"):
        Log(tmp_path / name).steps(healthy(), grad_global_norm=1.0, step_time=0.5).flush()
    path, seen = tmp_path / "page.html", {}
    path.write_text(render(live_page(viewed(tmp_path / "new", judged=False, beside=[tmp_path / "old"]))), "utf-8")
    browser.get(path.as_uri())
    browser.execute_script(SPIED)
    for theme in ("light", "dark"):
        waited(browser, f"return document.documentElement.dataset.charts === '{theme}'")
        browser.execute_script("window.texts = []; dispatchEvent(new Event('beforeprint'))")
        seen[theme] = browser.execute_script(DRAWN + LIGHTNESS)
        assert all(ink > 500 for ink, _ in seen[theme])
        assert {"new", "old"} <= set(browser.execute_script("return window.texts"))
        browser.execute_script("dispatchEvent(new Event('afterprint'))")
        assert browser.execute_script("return document.querySelectorAll('.printed').length") == 0
        browser.execute_script("document.getElementById('theme').click()")
    assert len(seen["light"]) > 3
    assert all(abs(own[1] - other[1]) < 40 for own, other in zip(*seen.values(), strict=True)), seen


pytest.importorskip("material", reason="needs mkdocs-material: the dependency group `docs`")
ROOT = Path(__file__).parents[2]
WIDER = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
FOUND = "return [...document.querySelectorAll('.md-search-result__item a')].map(one => one.getAttribute('href'))"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def phone():
    """A browser of 390 pixels."""
    driver = started(width=390)
    yield driver
    driver.quit()


def test_no_page_is_wider_than_a_phone_or_fetches_anything(site, phone):
    """Wide tables and code scroll by themselves."""
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        phone.get(page.as_uri())
        assert not phone.execute_script(WIDER), page
    assert [url for url in requests_of(phone) if not url.startswith(("file:", "about:", "blob:"))] == []


def test_search_works_from_disk(site, phone):
    """Without a server and its workers, by the frame of `iframe-worker.js`."""
    phone.get((site / "index.html").as_uri())
    phone.execute_script("document.querySelector('label[for=__search]').click()")
    box = phone.find_element("css selector", "input.md-search__input")
    waited(phone, "return document.activeElement === document.querySelector('input.md-search__input')")
    box.send_keys("waiver")
    waited(phone, f"return (() => {{ {FOUND} }})().length > 0")
    assert any("reference/gate.html" in href for href in phone.execute_script(FOUND))
