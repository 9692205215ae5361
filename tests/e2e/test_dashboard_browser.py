"""The page of `pyrmq dashboard` in a real Chromium: by keyboard, on a phone, without a cluster."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.e2e.dashboards import TOKEN, dashboard
from tests.e2e.wire import await_true

from pyrmq import Admin, DeadLetter, Producer, PushConsumer
from pyrmq.dashboard.guard import Permissions
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver.chrome.webdriver import WebDriver

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="needs Debian's chromium and chromium-driver",
    ),
    # Selenium leaves a socket to the driver open when it has ended.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SCRIPT = "<img src=x onerror=document.title='broken'>"
TOPICS = 1000
SECONDS = 20.0


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    """Two brokers with a thousand topics, a message with markup in its body, and a dead letter."""
    with cluster(brokers=2) as running:
        with Admin(name_server=running.name_server) as admin:
            for number in range(TOPICS):
                admin.create_topic(f"sensor-{number:04}", queues=1, brokers=["broker-a"])
            admin.create_topic("menu", queues=2)
        with Producer(name_server=running.name_server, trace=True) as producer:
            producer.send("menu", SCRIPT, keys="order-1")
            producer.send("menu", '{"tea": 2}', keys="order-2")

        def take(message: object) -> None:
            if SCRIPT.encode() in bytes(getattr(message, "body", b"")):
                raise DeadLetter("burnt")

        consumer = PushConsumer(name_server=running.name_server, group="kitchen", start="first")
        consumer.subscribe("menu", take)
        with consumer, Admin(name_server=running.name_server) as admin:
            await_true(lambda: "%DLQ%kitchen" in admin.topics(), SECONDS)
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def base(two: Cluster) -> Iterator[str]:
    permissions = Permissions(frozenset({"127.0.0.1"}), TOKEN, may_write=True)
    with dashboard(two.name_server, permissions) as page:
        yield f"http://127.0.0.1:{page.port}/"


def text(browser: WebDriver) -> str:
    return str(browser.execute_script("return document.body.innerText"))


def go(browser: WebDriver, address: str, words: str) -> None:
    """Open a section and wait until it shows these words."""
    browser.get("about:blank")
    browser.get(address)
    await_true(lambda: words in text(browser), SECONDS)


def press(browser: WebDriver, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def test_every_section_is_shown_without_a_message_in_the_console(
    browser: WebDriver, base: str
) -> None:
    go(browser, base, "broker-b")
    paint = browser.execute_script(
        "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    # A tenth of this where nothing else runs: it does not wait for any broker's figures.
    assert paint < 10_000
    for route, words in {
        "topics": "of 1,001",
        "topic?topic=menu": "order-2",
        "groups": "kitchen",
        "group?group=kitchen": "Lag by queue",
        "messages": "Find a message",
        "dead-letters": "kitchen",
        "dead-letters?group=kitchen": "order-1",
        "options?search=fileReserved": "fileReservedTime",
    }.items():
        go(browser, f"{base}#/{route}", words)
    assert browser.execute("getLog", {"type": "browser"})["value"] == []


def test_markup_in_a_body_is_text(browser: WebDriver, base: str) -> None:
    go(browser, f"{base}#/topic?topic=menu", SCRIPT)
    go(browser, f"{base}#/messages?by=key&topic=menu&text=order-1", SCRIPT)
    browser.find_element("css selector", "td a").click()
    await_true(lambda: "Trace" in text(browser) and SCRIPT in text(browser), SECONDS)
    assert "Sent pyrmq_producer" in text(browser)
    assert browser.title == "Message · pyrmq"
    assert browser.execute_script("return document.querySelectorAll('main img').length") == 0


def test_it_works_from_a_keyboard(browser: WebDriver, base: str) -> None:
    from selenium.webdriver.common.keys import Keys

    go(browser, base, "broker-b")
    press(browser, "g", "t")
    await_true(lambda: "sensor-0000" in text(browser), SECONDS)
    press(browser, "/")
    press(browser, *"sensor-09")
    await_true(lambda: "of 100" in text(browser) and "sensor-0900" in text(browser), SECONDS)
    rows = "return document.querySelectorAll('tbody tr').length"
    assert browser.execute_script(rows) == 50
    browser.execute_script("document.querySelector('tbody a').focus()")
    press(browser, Keys.ARROW_DOWN)
    focused = "return document.activeElement.textContent"
    assert browser.execute_script(focused) == "sensor-0901"
    # The figures are asked for again and again; the focus stays.
    browser.execute_script("document.querySelector('tbody').dataset.old = '1'")
    gone = "return !document.querySelector('tbody[data-old]')"
    await_true(lambda: browser.execute_script(gone), SECONDS)
    assert browser.execute_script(focused) == "sensor-0901"
    press(browser, Keys.ENTER)
    await_true(lambda: "Newest messages" in text(browser), SECONDS)
    assert browser.find_element("css selector", "h1").text == "sensor-0901"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("route", ["", "topics", "topic?topic=menu", "group?group=kitchen"])
def test_it_fits_a_phone_in_both_colours(
    browser: WebDriver, base: str, route: str, scheme: str
) -> None:
    metrics = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    try:
        words = {"": "broker-b", "topics": "menu", "group?group=kitchen": "Lag by queue"}
        go(browser, f"{base}#/{route}", words.get(route, "order-2"))
        width = browser.execute_script("return document.documentElement.scrollWidth")
        assert width <= 360
        back = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(15, 20, 24)") is (scheme == "dark")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_dead_letters_are_sent_again_with_the_token_of_the_address(
    browser: WebDriver, base: str
) -> None:
    browser.get("about:blank")
    browser.get(f"{base}#token={TOKEN}")
    await_true(lambda: "broker-b" in text(browser), SECONDS)
    assert TOKEN not in browser.current_url
    browser.execute_script("location.hash = '#/dead-letters?group=kitchen'")
    await_true(lambda: "Choose all" in text(browser), SECONDS)
    browser.find_element("xpath", "//button[.='Choose all']").click()
    await_true(lambda: "Send again (1)" in text(browser), SECONDS)
    browser.find_element("xpath", "//button[starts-with(., 'Send again')]").click()
    browser.switch_to.alert.accept()
    await_true(lambda: "Sent 1 again." in text(browser), SECONDS)


def test_without_a_cluster_it_says_so_and_recovers(browser: WebDriver) -> None:
    with cluster() as running:
        running.name_servers[0].stop()
        permissions = Permissions(frozenset({"127.0.0.1"}))
        with dashboard(running.name_server, permissions, timeout=1.0) as page:
            address = f"http://127.0.0.1:{page.port}/"
            go(browser, address, "No answer from the cluster.")
            assert "Trying again every 2 s." in text(browser)
            running.start()
            await_true(lambda: "broker-a" in text(browser), SECONDS)
            assert "No answer" not in text(browser)
        await_true(lambda: "was it stopped?" in text(browser), SECONDS)
