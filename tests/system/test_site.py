"""The documentation's site in a browser: Debian's Chromium, without a screen (tools/debian.sh browser)."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
import urllib.parse
from collections.abc import Iterator
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import Any

import pytest
from site_build import build, site_pages
from waiting import wait_until

TELEPHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}


class Silent(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Of a server of the site."""
    handler = functools.partial(Silent, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium, as wide as a telephone, with a log of its console and its requests."""
    from selenium import webdriver

    found = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    assert all(found.values()), f"tools/debian.sh browser installs what is missing: {found}"
    options = webdriver.ChromeOptions()
    options.binary_location = str(found["chromium"])
    profile = tmp_path_factory.mktemp("profile")
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=str(found["chromedriver"]))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_page_load_timeout(60)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", TELEPHONE)
    yield driver
    driver.quit()


def requests(browser: Any) -> list[str]:
    """Addresses that were asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith(("data:", "blob:", "chrome"))]  # the browser's own first page


def test_each_page_opens(browser: Any, address: str, site: Path) -> None:
    """Without an error on the console, a request to another host, or a need to scroll sideways on a telephone."""
    pages = sorted(path.relative_to(site).as_posix().removesuffix("index.html") for path in site.rglob("index.html"))
    assert len(pages) > 60
    wrong = []
    for page in pages:
        browser.get(f"{address}/{page}")
        asked = requests(browser)
        assert any(url.startswith(f"{address}/") for url in asked), "the log has no requests"
        wrong += [f"{page}: asks for {url}" for url in asked if not url.startswith(f"{address}/")]
        wrong += [f"{page}: {entry['level']}: {entry['message']}" for entry in browser.get_log("browser")]
        wide = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
        if wide > 0:
            wrong.append(f"{page}: {wide} pixels wider than a telephone")
        if not browser.execute_script("return [...document.images].every(image => image.naturalWidth > 0)"):
            wrong.append(f"{page}: a picture is missing")
    assert wrong == [], "\n".join(wrong)


def found_by_search(browser: Any, query: str, expected: str) -> bool:
    """Whether one of the results that are shown leads to an address that ends so."""
    script = """
        const box = document.querySelector("input[data-md-component=search-query]");
        box.value = arguments[0];
        box.dispatchEvent(new KeyboardEvent("keyup", {key: "a", bubbles: true}));
        box.dispatchEvent(new Event("input", {bubbles: true}));
    """
    links = "return [...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"
    browser.execute_script(script, query)

    def path(url: str) -> str:
        parts = urllib.parse.urlsplit(url)
        return parts.path + (f"#{parts.fragment}" if parts.fragment else "")

    return bool(
        wait_until(
            lambda: any(path(url).endswith(expected) for url in browser.execute_script(links)),
            f"{expected} among the results for {query!r}",
            seconds=20,
            seen=lambda: browser.execute_script(links)[:20],
            step=0.05,
        )
    )


def queries() -> dict[str, str]:
    """What people look for, and where it is: each command, and each public class."""
    from fastkcl.cli.main import COMMANDS

    wanted = {f"fastkcl {verb}": f"/commands/{verb}/" for verb in COMMANDS}
    tool = site_pages()
    for module in tool.PUBLIC:
        for name in tool.public_names(module):
            if isclass(getattr(import_module(module), name)):
                wanted.setdefault(name, f".{name}")
    return wanted


def test_search_finds_each_command_and_each_public_class(browser: Any, address: str) -> None:
    wanted = queries()
    assert len(wanted) > 120
    browser.get(f"{address}/")
    browser.execute_script("document.querySelector('[data-md-toggle=search]').click()")
    missing = []
    for query, expected in wanted.items():
        try:
            found_by_search(browser, query, expected)
        except AssertionError as error:
            missing.append(str(error))
    assert missing == []
