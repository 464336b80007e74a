"""The report: complete, self-contained, and nothing that a model wrote can act in it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.evaluate.charts import Line, Mark, interval_chart, line_chart, percent
from burnish.evaluate.conversation import LONGEST, conversation, prompt
from burnish.evaluate.headline import headline
from burnish.evaluate.markup import escape, h
from burnish.evaluate.report import ReportData, probability, render_report, write_report
from burnish.types import Event, Message, Score, Status, Stream, ToolCall, Trajectory, UsageError
from tests.evaluate import run_made_up
from tests.evaluate.made_up import episode, suite, task

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</pre></details></style><script>alert(1)</script>",
    "<!-- --!><svg/onload=alert(1)>",
    "javascript:alert(1)",
    "]]>&lt;script&gt;",
    "\x00\x1b[31m\u202egnp.exe",
    "\ud800",
    "{{ 7*7 }} {% raw %} ${7*7}",
]


class Page(HTMLParser):
    """What a browser would see: elements, attributes and texts, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def harmless(page: Page) -> None:
    assert not {"script", "img", "iframe", "object", "embed", "link", "form", "base"} & page.elements.keys()
    for name, value in page.attributes:
        assert not name.startswith("on") and name not in ("src", "srcset", "action")
        assert name != "href" or value.startswith("#")
        assert name != "style" or re.fullmatch(r"(left|top):-?[\d.]+%", value)


@pytest.fixture(scope="module")
def small() -> ReportData:
    return run_made_up.made_up_run(per_domain=4)


def hostile_run(text: str) -> ReportData:
    # A task's own fields come from a domain, whose texts are encodable.
    name = text.encode("utf-8", "replace").decode()
    asked = (Message("system", name), Message("user", name))
    of = replace(task(1, domain=name), prompt=asked, id=name)
    call = ToolCall(text, {text: text, "list": [text]})
    talk = Trajectory(
        text,
        of,
        [run_made_up.turn(0, text, call), run_made_up.turn(1, text)],
        events=[
            Event(
                "tool", 0, {"name": text, "arguments": {}, "content": text, "error": text, "call_id": text}
            ),
            Event(text, 1, {text: text}),
        ],
        status=Status("truncated", text),
        score=Score(0.0, {text: Stream(0.0, (0.5, None))}),
    )
    return ReportData(
        name=text,
        evaluations={"base": [talk], text: [talk]},
        metrics=[{"step": 1, "stage": text, "loss": 1.0}, {"step": 2, "stage": "b", "reward": 1.0}],
        recipe={text: text},
        titles={name: text},
        lineage=[{"step": text, "parent": text, "weights": text, "audit": {"seq": text}}],
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_model_acts(tmp_path: Path, text: str) -> None:
    page = Page(write_report(tmp_path / "report.html", hostile_run(text)).read_text())
    harmless(page)
    assert sum(shown_as(text) in part for part in page.texts) >= 12


def shown_as(text: str) -> str:
    """How the page shows a text: through `escape` and back through a parser."""
    return "".join(Page(escape(text)).texts)


@given(st.text(alphabet=st.characters()) | st.sampled_from(HOSTILE))
def test_text_stays_text(text: str) -> None:
    page = Page(h("p", text, title=text, class_="x"))
    assert page.elements == {"p": 1} and [name for name, _ in page.attributes] == ["title", "class"]
    if text.isprintable() and text:
        assert page.texts == [text] and ("title", text) in page.attributes


def test_characters_that_deceive_are_shown() -> None:
    assert escape("a\x1bb\u202ec\ud800\x7f\r") == "a\u241bb[U+202E]c?\u2421\u240d"


def test_an_element_has_only_what_it_was_given() -> None:
    assert h("i", 1, None, ["a", h("b", "<")], hidden=True, id=None, data_x=0.5) == (
        '<i hidden data-x="0.5">1a<b>&lt;</b></i>'
    )
    assert h("br") == "<br/>"


def test_the_page_needs_nothing_from_outside(small: ReportData) -> None:
    text = render_report(small)
    page = Page(text)
    harmless(page)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    assert "http://" not in text and "https://" not in text
    assert "@import" not in text and "url(" not in text
    assert {"viewport", "color-scheme"} <= {value for name, value in page.attributes if name == "name"}


def test_the_page_shows_what_it_must(small: ReportData) -> None:
    text = render_report(small)
    found = headline(small.evaluations, 13.4)
    for stage in ("base", "warmup", "trained"):
        assert percent(found[stage]["success"]) in text and percent(found[stage]["low"]) in text
    for title in run_made_up.TITLES.values():
        assert text.count(f"<h3>{title}</h3>") == 1
    for words in (
        "KL to the reference",
        "Weight of the KL",
        "Steps of an episode",
        "Tool failures and timeouts",
    ):
        assert f"<b>{words}</b>" in text
    for words in (
        "13.4 min",
        "The request timed out",
        "rate limit",
        "fault",
        "path +0.05",
        "clip_high",
        "61250",
    ):
        assert words in text
    assert escape(probability(found["p_value"])) in text and "above the supervised warm-up" in text


def test_secrets_are_not_shown(small: ReportData) -> None:
    marked = [
        replace(t, task=replace(t.task, secret={"answer": "hunter2"})) for t in suite({"files": [0, 1]})
    ]
    assert "hunter2" not in render_report(replace(small, evaluations={"base": marked, "trained": marked}))


def test_before_and_after_are_of_one_task_that_turned() -> None:
    data = ReportData("r", {"base": suite({"files": [1, 0, 0]}), "trained": suite({"files": [1, 0, 1]})})
    card = render_report(data).split('id="episode-files"')[1]
    assert card.index("not solved") < card.index("→") < card.index(">solved<")
    unturned = {"base": suite({"files": [1, 0]}), "trained": suite({"files": [1, 0]})}
    card = render_report(ReportData("r", unturned)).split('id="episode-files"')[1]
    assert "not solved" not in card


@pytest.mark.parametrize(
    "evaluations",
    [
        {},
        {"base": suite({"files": [0, 1]})},
        {"base": [], "trained": []},
        {"trained": [episode(task(1), None)]},
    ],
)
def test_a_run_that_is_not_finished_has_a_page(evaluations: dict[str, list[Trajectory]]) -> None:
    harmless(Page(render_report(ReportData("unfinished", evaluations, metrics=[{"step": 1, "kl": None}]))))


def test_figures_of_other_tasks_are_not_put_side_by_side() -> None:
    with pytest.raises(UsageError, match="did not run the same tasks"):
        render_report(ReportData("r", {"base": suite({"a": [1]}), "trained": suite({"b": [1]})}))


def test_what_is_left_out_is_said() -> None:
    text = render_report(
        ReportData("r", {"base": [*suite({"files": [1]}), episode(task(9), None, "invalid")]})
    )
    assert "Base: 1 invalid, 0 unscored" in text


def test_demonstrations_are_not_drawn_as_the_models_own_success() -> None:
    rows = [{"step": s, "stage": "warmup", "success": 1.0, "loss": 1.0 - s / 10} for s in range(3)]
    text = render_report(ReportData("r", {}, metrics=rows))
    assert "Warm-up loss" in text and "Success and reward" not in text
    rows = [{"step": s, "stage": "rl", "success": 0.1 * s, "loss": 0.0} for s in range(3)]
    text = render_report(ReportData("r", {}, metrics=rows))
    assert "Warm-up loss" not in text and "Success and reward" in text


def test_headline_has_the_figures_of_the_summary() -> None:
    stages = {"base": suite({"a": [0, 0], "b": [0, 1]}), "warmup": suite({"a": [0, 1], "b": [0, 1]})}
    found = headline({**stages, "trained": suite({"a": [1, 1], "b": [1, 1]})}, 9.5)
    assert [found[s]["success"] for s in ("base", "warmup", "trained")] == [0.25, 0.5, 1.0]
    assert found["base"]["low"] < 0.25 < found["base"]["high"] and found["minutes"] == 9.5
    assert found["domains"]["a"]["warmup"]["success"] == 0.5
    assert found["gain"]["difference"] == 0.75 and found["p_value"] == found["gain"]["p_value"]
    assert found["gain_over_warmup"]["gained"] == 2
    assert headline({"base": stages["base"]}) == {
        "base": found["base"],
        "domains": {d: {"base": found["domains"][d]["base"]} for d in ("a", "b")},
        "minutes": None,
    }


def test_a_conversation_folds_the_call_markup_and_keeps_the_words() -> None:
    talk = conversation(run_made_up.solved_episode(run_made_up.task("files", 1), "trained"))
    assert "&lt;tool_call&gt;" not in talk and "I try once more." in talk and "customer" in talk
    assert talk.index("fault") < talk.index("timed out after 10 s") < talk.index("Turn 2")
    odd = Trajectory("x", task(1), [run_made_up.turn(0, "<tool_call>{broken")])
    assert "&lt;tool_call&gt;{broken" in conversation(odd) and "unfinished" in conversation(odd)
    assert "No turn was taken" in conversation(Trajectory("x", task(1)))
    assert "not scored" in conversation(episode(task(1), None))


def test_long_texts_are_cut_and_counted() -> None:
    shown = prompt((Message("user", "x" * (LONGEST + 1234)),))
    assert "1,234 more characters" in shown and len(shown) < LONGEST + 200


def test_pictures_place_what_they_show() -> None:
    chart = interval_chart(
        {"a": [Mark("base", "Base", 0.5, 0.25, 1.0), Mark("other", "X", None, None, None)]}, {}
    )
    assert 'x1="25.00%" x2="100.00%"' in chart and 'cx="50.00%"' in chart and "Base 50 %; X –" in chart
    curve = line_chart("t", "n", [Line("l", "base", [(0, 0.0), (10, 1.0)])], share=True)
    assert "M0.00 100.00 L100.00 0.00" in curve


@pytest.mark.parametrize(
    "values", [[0.0], [5.0, 5.0], [-3.0, 4.0], [1e-9, 2e-9], [1e6, 1.0000001e6], [0.0, 0.0]]
)
def test_any_values_fit_into_their_picture(values: list[float]) -> None:
    chart = line_chart("t", "n", [Line("l", "base", list(enumerate(values)))], [(0, "a"), (1, "b")])
    places = [float(p) for p in re.findall(r"[ML]-?[\d.]+ (-?[\d.]+)", chart)]
    assert places and all(-0.01 <= place <= 100.01 for place in places)


def test_shares_and_chances_are_read_by_people() -> None:
    assert (percent(0.5), percent(0.045), percent(None)) == ("50 %", "4.5 %", "–")
    assert (probability(0.00001), probability(0.0042)) == ("p < 0.0001", "p = 0.0042")
