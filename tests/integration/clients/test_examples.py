"""The examples are whole crawlers: each answers what it is asked, and goes where it should."""

import pytest
from fleet import command_of, crawler, desk
from website import website

from shared.runtime.tracing import Mark

MARK = Mark(7, 9)


@pytest.mark.slow(6)
@pytest.mark.parametrize("example", ["python", "crawlee", "java", "shell"])
async def test_an_example_answers_what_it_is_asked(example, local_broker, tmp_path):
    command = command_of(example)
    async with website(60) as site, desk(local_broker.bootstrap_servers) as fleet:
        [host] = site.hosts
        found = [await fleet.ask(site.url(number), host) for number in (0, 1, 38)]
        traced = await fleet.ask(site.url(3), host, trace=MARK)
        again = await fleet.ask(site.url(0), host)
        gone = await fleet.ask(site.url(49), host)
        nobody = await fleet.ask("http://127.0.0.1:1/page/1", "127.0.0.1:1")
        late = await fleet.ask(site.url(2), host, seconds=-5)
        with crawler(command, fleet.settings, tmp_path / "log"):
            outcomes = await fleet.outcomes(7)

    digests = [outcomes[request_id].digest for request_id in (*found, again)]
    assert None not in digests
    assert digests[0] == digests[3]
    assert len(set(digests)) == 3
    assert outcomes[gone].result == "gone"
    assert outcomes[nobody].result == "failed"
    assert late not in outcomes
    tells = example in {"python", "shell"}
    # The third one leads elsewhere.
    told = [outcomes[one].group for one in (*found, gone)]
    here = "127.0.0.1" if tells else None
    assert told == [here, here, None, here]
    assert outcomes[nobody].group is None
    assert fleet.traces() == ({} if example == "shell" else {traced: MARK})
    assert site.seen["/page/2"] == 0


@pytest.mark.slow(6)
@pytest.mark.parametrize("example", ["python", "crawlee", "java", "shell"])
async def test_no_page_ends_an_example(example, local_broker, tmp_path):
    command = command_of(example)
    async with website(60) as site, desk(local_broker.bootstrap_servers) as fleet:
        [host] = site.hosts
        site.odd = {
            "/busy": (503, {"Retry-After": "9" * 5000}),
            "/later": (503, {"Retry-After": "9" * 10}),
            "/name": (302, {"Location": "http://xn--a/"}),
            "/address": (302, {"Location": "http://[x"}),
            "/nowhere": (301, {}),
            "/choices": (300, {}),
            "/nothing": (200, {}),
        }
        # As the URL standard allows, and Java's URI does not; curl would ask for many.
        patterned = await fleet.ask(f"{site.url(4)}?q=[1-3]&r={{a,b}}|^", host)
        odd = [await fleet.ask(f"http://{host}{path}", host) for path in site.odd]
        site.odd["/same"] = (304, {})
        same = await fleet.ask(f"http://{host}/same", host)
        nobody = await fleet.ask("http://no_body.invalid/[", "no_body.invalid")
        last = await fleet.ask(site.url(0), host)
        with crawler(command, fleet.settings, tmp_path / "log"):
            outcomes = await fleet.outcomes(11)

    assert outcomes[patterned].digest is not None
    assert site.seen["/page/4"] == 1
    *failed, empty = odd
    assert {outcomes[one].result for one in (*failed, nobody)} == {"failed"}
    # The others ask for no page on a condition, and a server that says this is wrong.
    assert outcomes[same].result == ("not_modified" if example == "python" else "failed")
    assert outcomes[empty].digest not in (None, outcomes[last].digest, outcomes[patterned].digest)
    assert outcomes[last].digest is not None
