"""The site opens from disk: no page is wider than a phone, search finds, nothing is fetched from a network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from browser import requests_of, started, waited

pytestmark = pytest.mark.judges

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
