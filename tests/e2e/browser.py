"""A real Chromium that opens one file, and remembers every request, message and dialog."""

import contextlib
import json
import shutil
import time

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
READY = "return document.documentElement.dataset.charts && document.documentElement.dataset.shards"

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
"""Functions of a page: `find` the canvases of a chart, count their `inked` pixels."""


def started(width=1200, height=900):
    """Return a driver of a headless Chromium; skips where there is none."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.set_capability("unhandledPromptBehavior", "ignore")
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    resized(driver, width, height)
    still = [{"name": "prefers-reduced-motion", "value": "reduce"}, {"name": "prefers-color-scheme", "value": "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": still})
    return driver


def resized(driver, width, height=900):
    """Give the window another size, in CSS pixels."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def opened(driver, path):
    """Open a file and wait until its charts and its table stand."""
    driver.get(path.as_uri())
    waited(driver, READY)


def waited(driver, script, seconds=20):
    """Wait until a script returns something true, and return it."""
    end = time.monotonic() + seconds
    while not (value := driver.execute_script(script)):
        assert time.monotonic() < end, f"never true: {script}"
        time.sleep(0.05)
    return value


def requests_of(driver):
    """Return the addresses that were asked for since the last call, data in the page left out."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith("data:")]


def complaints_of(driver):
    """Return what the console shows since the last call."""
    return [entry["message"] for entry in driver.get_log("browser")]


def has_dialog(driver):
    """Tell whether an alert is open."""
    from selenium.common.exceptions import NoAlertPresentException

    with contextlib.suppress(NoAlertPresentException):
        return driver.switch_to.alert.text is not None
    return False
