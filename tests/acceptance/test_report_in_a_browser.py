"""The HTML report in a real browser: found, filtered, opened and followed, by eye, by key and by ear.

Long because all of it looks at one page of one gallery of conversations, in one browser for the whole module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.browser import CHROMIUM, Page, browser_page
from support.reports import LONGEST, QUOTE, USAGE, gallery, hostile, many, report_of
from support.shown import HOSTILE

from redteam_forker.changes.render import visible
from redteam_harness.report.html import html_report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.reports import Held

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH"),
    pytest.mark.timeout(120),
]

# Of what is seen in the page: the least contrast of a text with what is behind it, the smallest letters, and
# how far anything sticks out at the side.
_MEASURE = """(() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const luminance = colour => colour.slice(0, 3).map(c => c / 255)
    .map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = element => {
    for (let one = element; one; one = one.parentElement) {
      const found = channels(getComputedStyle(one).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const own = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  const seen = [...document.body.querySelectorAll("*")].filter(element => element.checkVisibility());
  const texts = seen.filter(element => own(element) && element.tagName !== "OPTION");
  const contrasts = texts.map(element => {
    const style = getComputedStyle(element);
    const [a, b] = [channels(style.color), behind(element)].map(luminance);
    return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), element.className || element.tagName];
  });
  const smallest = Math.min(...texts.map(element => parseFloat(getComputedStyle(element).fontSize)));
  return {
    texts: texts.length,
    contrast: contrasts.sort((a, b) => a[0] - b[0])[0],
    overflow: document.documentElement.scrollWidth - innerWidth,
    smallest,
  };
})()"""

_ROWS = "[...document.querySelectorAll('.row strong')].map(one => one.textContent)"
_COUNT = "document.querySelector('.count').textContent"
_FOCUS = "document.activeElement.innerText.trim()"
_OPENED = "document.querySelector('.sides') && document.querySelector('#conversation-title').innerText"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(autouse=True)
def _as_it_was(page: Page) -> None:
    page.look(1400)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("report"), gallery(), not_held=["c008"], usage=USAGE)


def written(folder: Path, conversations: list[Held], **more: Any) -> str:
    path = folder / "report.html"
    path.write_text(html_report(*report_of(conversations, **more)), encoding="utf-8")
    return path.as_uri()


def listed(page: Page, url: str, state: str = "") -> list[str]:
    """Open the list, and say what is in it."""
    page.open(url + state)
    page.wait("document.querySelector('.count')?.textContent")
    found = page.evaluate(_ROWS)
    assert isinstance(found, list)
    return found


def opened(page: Page, url: str, id_: str = "c001") -> Page:
    page.open(f"{url}#c={id_}").wait(_OPENED)
    return page


def follow(page: Page, finding: str) -> None:
    """Click on a finding."""
    buttons = "[...document.querySelectorAll('button.finding')]"
    page.evaluate(f"{buttons}.find(one => one.innerText.includes({finding!r})).click()")


def pick(page: Page, name: str, value: str) -> None:
    page.evaluate(
        f"(() => {{ const one = document.querySelector('#filter-{name}'); one.value = '{value}';"
        " one.dispatchEvent(new Event('change')); })()"
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 800, 360])
def test_it_fits_any_window_and_every_text_stands_out(page: Page, url: str, width: int, dark: bool) -> None:
    page.look(width, dark=dark)
    listed(page, url)
    overview = page.evaluate(_MEASURE)
    opened(page, url)
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    page.evaluate("document.querySelector('button.finding').click()")
    conversation = page.evaluate(_MEASURE)
    for found, least in ((overview, 100), (conversation, 300)):
        assert found["texts"] > least
        assert found["contrast"][0] >= 4.5, found["contrast"]  # WCAG 2 AA
        assert found["overflow"] <= 0
        assert found["smallest"] >= 12
    assert page.problems == []


def test_transcript_calls_and_changes_stand_side_by_side_and_on_a_phone_one_below_the_other(
    page: Page, url: str
) -> None:
    edges = "['.said', '.tools', '.changed'].map(one => document.querySelector('.sides ' + one))"
    opened(page, url)
    lefts = page.evaluate(f"{edges}.map(one => one.getBoundingClientRect().left)")
    assert lefts == sorted(set(lefts))
    page.look(390)
    said, tools, changed = page.evaluate(f"{edges}.map(one => one.getBoundingClientRect().left)")
    assert said == tools
    assert changed < said  # over the whole width, without room for the turns' numbers


def test_the_keyboard_alone_finds_opens_and_follows(page: Page, url: str) -> None:
    listed(page, url)
    pick(page, "outcome", "fail")
    page.wait("location.hash === '#outcome=fail'")
    page.key("Tab")
    assert page.evaluate(_FOCUS) == "Skip to the content"
    page.key("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.evaluate("location.hash") == "#outcome=fail"  # what was filtered stays
    page.evaluate("document.querySelector('#filter-q').focus()")
    page.key("ArrowDown")
    page.key("ArrowDown")
    assert "c006" in page.evaluate(_FOCUS)
    page.key("ArrowUp")
    assert "c001" in page.evaluate(_FOCUS)
    page.key("End")
    assert "c006" in page.evaluate(_FOCUS)
    page.key("Home")
    assert "c001" in page.evaluate(_FOCUS)
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.key("Enter")
    assert "c001" in page.wait(_OPENED)
    assert page.evaluate("document.activeElement.id") == "conversation-title"

    while "kind changed" not in page.evaluate(_FOCUS):
        page.key("Tab")
    page.key("Enter")
    assert page.evaluate("document.activeElement.matches('tbody.lit')")
    assert "90311" in page.evaluate(_FOCUS)
    page.key("Escape")
    assert "kind changed" in page.evaluate(_FOCUS)
    assert page.evaluate("document.querySelectorAll('.lit').length") == 0

    page.key("Escape")
    page.wait(f"document.querySelector('#conversation').hidden && {_ROWS}.length")
    assert "c001" in page.evaluate(_FOCUS)


def test_the_list_is_one_stop_of_the_tab_key(page: Page, url: str) -> None:
    listed(page, url)
    assert page.evaluate("document.querySelectorAll('.row[tabindex=\"0\"]').length") == 1


@pytest.mark.parametrize(
    ("finding", "evidence"),
    [
        ("kind changed from", ["tbody: ~ changed id 90311", "div: → reschedule"]),
        ("A row was deleted from keyless", ["deleted (no key)"]),
        ("reschedule was called before", ["div: → reschedule"]),
        ("It stated what nobody", ["div: agent"]),
        ("Where it was attempted", ["div: ←"]),
        ("reschedule in turn 2 changed", ["tbody: ~ changed id 90311", "div: → reschedule"]),
    ],
)
def test_a_finding_leads_to_its_evidence_and_the_evidence_back(
    page: Page, url: str, finding: str, evidence: list[str]
) -> None:
    opened(page, url)
    follow(page, finding)
    lit = page.evaluate(
        "[...document.querySelectorAll('.lit')].map(one => `${one.localName}: ${one.innerText.trim()}`)"
    )
    assert len(lit) == len(evidence)
    for words in evidence:
        assert any(words in one.replace("\n", " ") for one in lit), (words, lit)
    assert page.evaluate("document.activeElement.classList.contains('lit')")
    box = page.evaluate("document.activeElement.getBoundingClientRect().toJSON()")
    assert 0 <= box["top"] < 900 or box["height"] > 900  # it is in the window
    page.evaluate("document.activeElement.querySelector('.flag').click()")
    assert page.evaluate("document.activeElement.matches('button.finding')")
    assert page.evaluate("document.querySelector('.back').hidden")


def test_a_rule_that_reads_tables_leads_to_all_their_rows_one_after_the_other(page: Page, url: str) -> None:
    opened(page, url)
    follow(page, "40 rows")
    assert page.evaluate("document.querySelectorAll('tbody.lit').length") == 40
    first = page.evaluate("document.activeElement.id")
    page.evaluate("[...document.querySelectorAll('.back button')][0].click()")
    assert page.evaluate("document.activeElement.id") == first.replace("-0", "-1")


def test_a_row_names_the_call_that_wrote_it_and_a_call_its_rows(page: Page, url: str) -> None:
    opened(page, url)
    page.evaluate("document.querySelector('tbody button.by').click()")
    assert page.evaluate(_FOCUS).startswith("→ reschedule")
    page.evaluate("[...document.querySelectorAll('.call button.by')].at(-1).click()")
    assert page.evaluate("document.querySelectorAll('tbody.lit').length") == 42
    assert page.evaluate("document.querySelector('.tag.outside').innerText") == "outside any call"


def test_what_a_judge_quoted_is_marked_in_the_line(page: Page, url: str) -> None:
    opened(page, url)
    marks = page.evaluate("[...document.querySelectorAll('.speech.agent mark')].map(one => one.textContent)")
    assert marks == [QUOTE]  # however the judge spelled it


def test_everything_that_happened_is_told(page: Page, url: str) -> None:
    opened(page, url)
    text = page.evaluate("document.querySelector('.talk').textContent")
    for part in (
        "may now say: date_of_birth",
        "send_smsmockedfault: timeout, as the case says; the mock had run before",
        "Refused: no room",
        "no answer was recorded",
        "printed: debug: here",
        "handed over: another agent → billing",
        "late: the agent left this running: send_mail",
        "a session (worker) was active",
        "agent's fault, crash: Traceback: boom",
        "end: the script is played to its end",
    ):
        assert part in text, part


def test_filters_narrow_count_and_stand_in_the_address(page: Page, url: str) -> None:
    assert listed(page, url) == ["c001", "c006", "c003", "c005", "c004", "c002", "c007"]  # the gravest first
    assert page.evaluate(_COUNT) == "7 conversations"
    pick(page, "case", "move-to-thursday")
    assert page.evaluate(_ROWS) == ["c005", "c004", "c007"]
    assert page.evaluate(_COUNT) == "3 of 7 conversations"
    options = "[...document.querySelector('#filter-outcome').options].map(one => one.label)"
    assert page.evaluate(options)[1:] == [
        "derailed (1)",
        "fail (0)",
        "infra-fault (0)",
        "judge-fault (1)",
        "pass (1)",
    ]
    pick(page, "outcome", "pass")
    page.wait("location.hash === '#outcome=pass&case=move-to-thursday'")
    assert listed(page, url, "#outcome=pass&case=move-to-thursday") == ["c007"]
    page.evaluate("[...document.querySelectorAll('.counts button')][0].click()")
    assert page.evaluate(_COUNT) == "7 conversations"
    for state, expected in {
        "#severity=3": ["c001"],
        "#rule=told-the-truth": ["c001", "c005"],
        "#persona=31": ["c002"],
        "#disposition=confused": ["c005"],
        f"#case={LONGEST}": ["c006"],
        "#outcome=fail&persona=31": [],
    }.items():
        assert listed(page, url, state) == expected, state
    assert "No conversation matches" in page.evaluate("document.querySelector('.rows').innerText")


def test_a_rule_of_the_summary_leads_to_the_conversations_that_broke_it(page: Page, url: str) -> None:
    listed(page, url)
    page.evaluate(
        "[...document.querySelectorAll('th a')].find(one => one.innerText === 'told-the-truth').click()"
    )
    page.wait(f"{_ROWS}.length === 2")
    assert page.evaluate(_FOCUS) == "Conversations"
    assert 0 <= page.evaluate("document.activeElement.getBoundingClientRect().top") < 900
    assert page.evaluate("document.querySelector('#filter-rule').value") == "told-the-truth"


def test_a_search_looks_into_what_was_said_called_and_found(page: Page, url: str) -> None:
    for words, expected in {
        "weber FOLLOW-UP": ["c001"],
        "find_patient": ["c001"],
        "say yes to everything": ["c001"],
        "server went": ["c003"],
        "with whom?": ["c001", "c006", "c003", "c005", "c004", "c002", "c007"],
        "nowhere": [],
    }.items():
        listed(page, url)
        page.evaluate("document.querySelector('#filter-q').focus()")
        page.type(words)
        page.wait(f"JSON.stringify({_ROWS}) === JSON.stringify({expected})")


def test_a_link_opens_one_conversation_and_back_returns_to_the_same_list(page: Page, url: str) -> None:
    listed(page, url, "#case=move-to-thursday")
    page.evaluate("document.querySelectorAll('.row')[1].click()")
    assert "c004" in page.wait(_OPENED)
    assert page.evaluate("document.title") == "c004 · front-desk · run 7f3kqa"
    assert page.evaluate("document.querySelector('.steps').innerText").split("\n")[1:] == [
        "2 of 3",
        "Previous",
        "Next",
    ]
    page.evaluate("[...document.querySelectorAll('.steps a')].at(-1).click()")
    page.wait("document.querySelector('#conversation-title').innerText.includes('c007')")
    page.evaluate("history.go(-2)")
    page.wait(f"!document.querySelector('#overview').hidden && {_ROWS}.length === 3")
    listed(page, url, "#c=nobody")
    assert page.evaluate("[location.hash, document.querySelector('#overview').hidden]") == ["", False]


def test_screen_readers_are_told_where_they_are_and_what_is_what(page: Page, url: str) -> None:
    listed(page, url)
    nodes = page.accessible()
    roles = {node.role for node in nodes}
    assert {"banner", "main", "search", "table", "columnheader", "rowheader", "status", "list"} <= roles
    names = {(node.role, node.name) for node in nodes}
    for expected in (
        ("heading", "Summary"),
        ("heading", "What went wrong, severity 1"),
        ("heading", "Conversations"),
        ("searchbox", "Search in what was said, called and found"),
        ("combobox", "Rule not held"),
        ("table", "By case"),
        ("columnheader", "Share passed"),
        ("rowheader", "first-visit"),
    ):
        assert expected in names, expected
    row = next(node.name for node in nodes if node.role == "link" and node.name.startswith("fail c001"))
    assert "first-visit persona 2864 · evasive severity 1" in row  # told by words, not by colours

    opened(page, url)
    nodes = page.accessible()
    names = {(node.role, node.name) for node in nodes}
    for expected in (
        ("navigation", "Conversations"),
        ("article", "fail c001 first-visit"),
        ("heading", "Verdicts"),
        ("heading", "Transcript"),
        ("heading", "Tool calls"),
        ("region", "What changed"),
        ("group", "polite: fail"),
        ("button", "Go to the finding of polite"),
        ("columnheader", "Before"),
    ):
        assert expected in names, expected
    assert {"insertion", "deletion", "mark"} <= {node.role for node in nodes}
    for node in nodes:
        if node.role in ("link", "button", "searchbox", "combobox", "table"):
            assert node.name, node


def test_hostile_data_is_text_wherever_it_stands(page: Page, tmp_path: Path) -> None:
    url = written(tmp_path, hostile(), suite="</title><script>alert(1)</script>")
    assert len(listed(page, url)) == len(HOSTILE)
    assert page.evaluate("document.title").startswith("</title><script>alert(1)</script> ·")
    strange = "img, iframe, object, embed, base, link, svg:not(.bar), [onload], [onerror], [style]"
    elements = f"document.querySelectorAll({strange!r}).length"
    assert page.evaluate(elements) == 0
    scripts = page.evaluate("[...document.querySelectorAll('script')].map(one => one.type)")
    assert scripts.count("") == 1
    for number in range(1, len(HOSTILE) + 1):
        opened(page, url, f"c{number:03}")
        assert page.evaluate(elements) == 0
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        text = page.evaluate("document.querySelector('#conversation').textContent")
        # Nothing that is obeyed, turned around or not seen is left of it; only line ends of what was said.
        assert not set(text) & set("\x00\x07\x0b\x0c\x1b\x7f\x85\x9b\u200b\u2028\u202e\u2066\ufeff")
        for line in HOSTILE[number - 1].split("\n"):
            # What can be seen of a value is there as it is.
            assert visible(line) in text, number
    assert page.problems == []


def test_the_policy_of_the_page_refuses_what_is_not_its_own(page: Page, url: str) -> None:
    listed(page, url)
    page.evaluate(
        "(() => { const added = document.createElement('img'); added.src = 'http://127.0.0.1:9/x.png';"
        " document.body.append(added); })()"
    )
    refused = page.evaluate(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return false; } catch { return true; } })()"
    )
    assert refused
    assert any("Content Security Policy" in problem for problem in page.problems)


def test_it_loads_nothing_but_itself(page: Page, url: str) -> None:
    listed(page, url)
    opened(page, url)
    assert {one.partition("#")[0] for one in page.requests} == {url}
    assert page.problems == []


def test_without_scripts_the_summary_can_be_read(page: Page, url: str) -> None:
    page.scripts(allowed=False)
    try:
        page.open(url)
        text = " ".join(node.name for node in page.accessible() if node.role == "StaticText")
    finally:
        page.scripts(allowed=True)
    for part in (
        "Scripts are switched off here, so only this summary is shown",
        "conversations broke a rule of severity 1",
        "A new patient who is booked as a follow-up gets ten minutes instead of forty.",
        "right-visit-kind",
    ):
        assert part in text, part
    assert "Search in what was said" not in text  # no filter that would do nothing


def test_a_browser_that_cannot_unpack_says_so(page: Page, url: str) -> None:
    with page.without("DecompressionStream"):
        assert len(listed(page, url)) == 7
        page.open(f"{url}#c=c001")
        page.wait("document.querySelector('.callout')?.innerText.includes('This browser cannot open')")
        assert page.problems == []


def test_a_thousand_conversations_are_listed_a_hundred_at_a_time(page: Page, tmp_path: Path) -> None:
    url = written(tmp_path, many(1000))
    assert len(listed(page, url)) == 100
    assert page.evaluate(_COUNT) == "1,000 conversations"
    page.evaluate("document.querySelector('.rows a').focus()")
    page.key("End")
    page.key("ArrowDown")  # beyond the last of those that are drawn
    assert len(page.evaluate(_ROWS)) == 200
    assert page.evaluate("[...document.querySelectorAll('.row')].indexOf(document.activeElement)") == 100
    opened(page, url, "c0777")
    assert "Hello, caller 777." in page.evaluate("document.querySelector('.talk').innerText")
    listed(page, url, "#q=" + str(7919 * 777))
    page.wait(f"{_COUNT} === '1 of 1,000 conversations'")
    assert page.evaluate(_ROWS) == ["c0777"]


def test_on_paper_everything_is_unfolded_and_no_control_is_left(page: Page, url: str) -> None:
    opened(page, url)
    page.look(800, print_=True)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    controls = "[...document.querySelectorAll('.steps, .flags, .small')].filter(one => one.checkVisibility())"
    assert page.evaluate(f"{controls}.length") == 0
    assert page.evaluate("getComputedStyle(document.querySelector('.changed')).overflowY") == "visible"
