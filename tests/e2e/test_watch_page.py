"""The page of a run in a real browser: it follows a log that grows, takes an acknowledgement, and fits a telephone."""

import math
import sys
import threading
from pathlib import Path

import pytest
from browser import complaints_of, requests_of, resized, started, waited

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "training"))
from test_followed_run import Log, healthy, viewed

from dataaudit.base.render.html import render
from dataaudit.live.incidents import FOLDER, acknowledged
from dataaudit.live.watch_process import WatchProcess
from dataaudit.training.pages.live_page import live_page
from dataaudit.training.pages.run_view import RunView
from dataaudit.training.pages.serving import serve

pytest.importorskip("uvicorn", reason="needs the extra `serve`")
pytestmark = pytest.mark.judges
HEADLINE = "return document.getElementById('headline').textContent"
DRAWN = """
const find = (node, out = []) => {
  for (const one of [...(node.shadowRoot ? node.shadowRoot.children : []), ...node.children]) {
    if (one.tagName === "CANVAS") out.push(one);
    find(one, out);
  }
  return out;
};
const inked = (canvas) => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let found = 0;
  for (let at = 3; at < data.length; at += 4) found += data[at] > 0;
  return found;
};
"""
BLANK = (
    DRAWN
    + "return [...document.querySelectorAll('.chart')].filter((one) => !find(one).some(inked)).map((one) => one.id)"
)


@pytest.fixture(scope="module")
def browser():
    """One Chromium for all tests of this file."""
    driver = started()
    yield driver
    driver.quit()


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
    """A page of two runs, printed before anything was scrolled: a copy of each chart, with ink, and none afterwards."""
    for name in ("new", "old"):
        Log(tmp_path / name).steps(healthy(), grad_global_norm=1.0, step_time=0.5).flush()
    path = tmp_path / "page.html"
    path.write_text(render(live_page(viewed(tmp_path / "new", judged=False, beside=[tmp_path / "old"]))), "utf-8")
    browser.get(path.as_uri())
    waited(browser, "return document.documentElement.dataset.charts")
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    blank = (
        DRAWN
        + "return [...document.querySelectorAll('.chart')].filter((one) => !(inked(one.nextSibling) > 500)).length"
    )
    assert browser.execute_script(blank) == 0
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script("return document.querySelectorAll('.printed').length") == 0
