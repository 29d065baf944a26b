"""The coordinator's pages as people use them, in Chromium: with keys, on a phone, by night."""

from urllib.parse import quote

import pytest
from chromium import chromium, need_chromium
from views_world import HOSTILE, STREAM, URL
from workers import worker

pytestmark = [pytest.mark.slow(20), pytest.mark.kafka, pytest.mark.postgres]

PAGES = ["", f"page?url={quote(URL, safe='')}", "hosts", "sources", "calibration?days=28"]
WHERE = "(document.activeElement.id || document.activeElement.textContent.trim())"
TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
UNNAMED = """[...document.querySelectorAll('a, button, input, select, svg, [role=region], table')]
.filter((one) => !(one.textContent.trim() || one.getAttribute('aria-label') ||
(one.labels && one.labels.length))).map((one) => one.outerHTML)"""
FAINT = """(() => {
const light = (text) => {
  const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const ground = (one) => {
  const color = getComputedStyle(one).backgroundColor;
  return /, 0\\)$/.test(color) && one.parentElement ? ground(one.parentElement) : color;
};
const named = 'a, button, input, select, p, h1, h2, h3, dt, dd, li, td, th, caption, small, label';
return [...document.querySelectorAll(named)].filter((one) => {
  const [text, behind] = [light(getComputedStyle(one).color), light(ground(one))];
  return (Math.max(text, behind) + .05) / (Math.min(text, behind) + .05) < 4.5;
}).map((one) => one.outerHTML.slice(0, 120));
})()"""
"""Texts with less contrast than WCAG 2 asks for (AA, 4.5 to 1)."""


@pytest.fixture(scope="module", autouse=True)
def installed():
    """Nothing is started for tests that are skipped."""
    need_chromium()


async def tab_to(window, wanted):
    """Go on with Tab until the focus is there; the stops on the way. Each of them shows."""
    stops = []
    for _ in range(40):
        await window.press("Tab")
        stops.append(await window.ask(WHERE))
        assert await window.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        if stops[-1] == wanted:
            return stops
    raise AssertionError(f"Tab never comes to {wanted}: {stops}")


async def test_a_page_is_looked_up_with_keys_alone(viewed):
    async with chromium() as window:
        await window.see(1180, 860)
        await window.go(f"{viewed.url}/")
        stops = await tab_to(window, "Page")
        assert stops == ["To the content", "Overview", "Page"]
        await window.press("Enter")
        await window.until("location.pathname === '/page' && document.readyState === 'complete'")
        stops = await tab_to(window, "url")
        assert stops == [
            "To the content",
            "Overview",
            "Page",
            "Hosts",
            "Sources",
            "Calibration",
            "url",
        ]
        await window.write(URL)
        await window.press("Enter")
        await window.until("document.querySelector('#result svg') !== null")
        assert await window.ask("document.querySelector('#result h2').textContent") == URL
        # Who cannot see it hears the reason, and what the curve shows.
        said = await window.ask("document.getElementById('message').textContent")
        assert "threshold" in said
        assert await window.ask("document.getElementById('message').ariaLive") == "polite"
        name = await window.ask("document.querySelector('#result svg').getAttribute('aria-label')")
        assert name.startswith("value ")
        # From there to its host.
        await tab_to(window, "What binds its host")
        await window.press("Enter")
        await window.until("document.querySelector('#result dl') !== null")
        assert await window.ask("document.querySelector('#result h2').textContent") == "a.example"


@pytest.mark.parametrize("dark", [False, True])
async def test_every_page_fits_a_phone_by_day_and_by_night(viewed, dark, tmp_path):
    async with chromium() as window:
        await window.see(360, 740, dark=dark)
        for page in PAGES:
            await window.go(f"{viewed.url}/{page}")
            if page:
                assert await window.ask("document.querySelector('#result').children.length > 0")
            (tmp_path / f"{page.partition('?')[0] or 'overview'}.png").write_bytes(
                await window.picture()
            )
            assert not await window.ask(TOO_WIDE), page
            assert await window.ask(UNNAMED) == [], page
            assert await window.ask(FAINT) == [], page
            assert await window.ask("document.querySelectorAll('h1').length") == 1
            here = "document.querySelector('nav [aria-current=page]').href === location.href"
            assert await window.ask(f"({here}) || location.search !== ''"), page


async def test_a_stream_is_shown_with_its_cost_and_why_it_fails(viewed):
    cells = f"""[...document.querySelectorAll('table')]
        .find((one) => one.textContent.includes('{STREAM}')).rows"""
    async with chromium() as window:
        await window.see(1180, 860)
        await window.go(f"{viewed.url}/sources")
        texts = f"[...{cells}].map((row) => [...row.cells].map((cell) => cell.textContent))"
        titles, stream, bots = await window.ask(texts)
        shown = dict(zip(titles, stream, strict=True))
        assert (shown["Source"], shown["Cost, crawls a day"]) == ("changes", "48")
        assert (shown["Failures in a row"], shown["Why it fails"]) == ("3", HOSTILE)
        assert (shown["Bytes a day"], shown["Connections"]) == ("500,000,000", "96")
        assert dict(zip(titles, bots, strict=True))["Source"] == "changes-bots"
        said = await window.ask("document.getElementById('message').textContent")
        assert said.endswith("2 of streams, 1 failing")


async def test_names_that_are_made_to_do_harm_are_texts(viewed):
    async with chromium() as window:
        for page in ("hosts", "sources"):
            await window.go(f"{viewed.url}/{page}")
            shown = await window.ask("document.querySelector('#result').textContent")
            assert HOSTILE in shown
            assert await window.ask("document.querySelectorAll('img').length") == 0
        for page in (f"hosts?host={quote(HOSTILE)}", f"page?url={quote(HOSTILE)}"):
            await window.go(f"{viewed.url}/{page}")
            said = await window.ask("document.getElementById('message').textContent")
            assert "is not a host" in said or "not an absolute URL" in said
            assert await window.ask("document.querySelectorAll('img').length") == 0
        assert "taken" not in await window.ask("document.title")


HEARD = "document.querySelector('[role=status]')"
COUNT = f"""(window.told = 0, new MutationObserver(() => window.told++).observe({HEARD},
{{ childList: true, characterData: true, subtree: true }}), 0)"""


async def test_who_hears_the_overview_is_told_what_is_amiss_and_not_of_each_second(viewed):
    async with chromium() as window:
        await window.go(f"{viewed.url}/")
        await window.until(f"{HEARD}.textContent.includes('no shard reports')")
        assert (
            await window.ask("document.querySelectorAll('[role=status], [aria-live]').length") == 1
        )
        await window.ask(COUNT)
        before = await window.ask("document.getElementById('status').textContent")
        await window.until(f"document.getElementById('status').textContent !== {before!r}")
        assert await window.ask("window.told") == 0


async def test_where_the_coordinator_is_gone_the_page_says_so(view_settings, tmp_path):
    settings = view_settings.model_copy(update={"instance": "another"})
    with worker("coordinator", settings, tmp_path) as process:
        await process.ready()
        async with chromium() as window:
            await window.go(f"{process.url}/hosts")
            process.kill()
            await window.ask("document.querySelector('#host').value = 'a.example'")
            await window.ask("import('./common.js').then((c) => c.fill('hosts.json', () => ''))")
            await window.until("document.getElementById('message').className === 'notice'")
            said = await window.ask("document.getElementById('message').textContent")
            assert said == "the coordinator does not answer"
