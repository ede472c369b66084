import re
import time

import pytest

from regard.views.attention_map import AttentionMap
from tests.serve.running import running

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(1)> \u202e &lt; \x1b"


def test_a_text_is_answered_and_looked_into(shown, predictors):
    page = shown()
    page.run("a b c", model="reverse")
    expected = predictors["reverse"].predict("a b c", nbest=5)
    assert page.outputs() == [expected.text] == ["c b a"]
    texts = page.page.locator(".best .text").all_text_contents()
    assert texts == [each.text for each in expected.alternatives]
    numbers = page.page.locator(".best .number").all_text_contents()
    assert numbers == [
        f"score {each.ranking_score:.2f}, log p {each.log_probability:.2f}" for each in expected.alternatives
    ]
    assert page.page.get_by_role("tab", selected=True).text_content() == "Lines"
    spoken = page.page.locator("#status").text_content()
    assert re.fullmatch(r"Done in [0-9.]+ s\. reverse: c b a", spoken)


@pytest.mark.parametrize(("side", "sign"), [("Queries", "→"), ("Keys", "←")])
def test_a_click_on_a_word_of_either_side_says_where_it_looked(shown, predictors, side, sign):
    page = shown()
    page.run("a b c", model="reverse")
    page.page.get_by_role("tab", name="Words").click()
    page.page.get_by_role("listbox", name=side).get_by_role("option", name="c").click()
    model = predictors["reverse"]
    picture = model.attention_map(model.predict("a b c", return_weights=True))
    weights, words = picture.select(), picture.columns
    row = weights[0] if sign == "→" else weights[:, 2]
    others = words if sign == "→" else picture.rows
    best = sorted(zip(row.tolist(), others, strict=True), reverse=True)
    assert page.description().startswith(f"c {sign} {best[0][1]} {round(best[0][0], 3):g}, {best[1][1]} ")
    assert f"pinned0={'row0' if sign == '→' else 'column2'}" in page.page.url


def test_any_layer_and_head_can_be_chosen(shown, predictors):
    page = shown()
    page.run("a b c", model="transformer", words="tokens")
    page.page.get_by_label("Layer").select_option("1")
    page.page.get_by_label("Head").select_option("0")
    page.page.get_by_role("tab", name="Words").click()
    page.page.get_by_role("listbox", name="Queries").get_by_role("option").first.click()
    model = predictors["transformer"]
    picture = model.attention_map(model.predict("a b c", return_weights=True))
    weights = picture.select(layer=1, head=0)[0]
    best = picture.columns[weights.argmax()]
    assert page.description().startswith(f"{picture.rows[0]} → {best} {round(float(weights.max()), 3):g}")
    assert "layer0=1&head0=0" in page.page.url


def test_another_attention_can_be_chosen(shown):
    page = shown()
    page.run("a b c", model="transformer")
    page.page.get_by_role("tab", name="Words").click()
    page.page.get_by_label("Attention").select_option("encoder")
    page.drawn()
    rows = page.page.get_by_role("listbox", name="Queries").get_by_role("option")
    assert rows.all_text_contents() == ["a", "b", "c", "<eos>"]
    assert "kind=encoder" in page.page.url
    page.page.locator("[name=model]").select_option("reverse")
    assert not page.page.get_by_label("Attention").is_visible()


def test_a_text_grows_before_the_eyes(shown, predictors):
    page = shown()
    page.page.evaluate(
        """() => {
            window.sizes = [];
            const look = () => sizes.push(document.querySelector(".written")?.textContent.length ?? 0);
            new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
        }"""
    )
    page.run("the c", model="gpt", max_tokens="9", seed="4", temperature="0.8")
    expected = predictors["gpt"].generate("the c", max_tokens=9, seed=4, temperature=0.8)
    assert page.outputs() == [f"the c{expected.text}"]
    assert page.page.locator(".prompt").text_content() == "the c"
    sizes = page.page.evaluate("sizes")
    assert sizes == sorted(sizes)
    assert len(set(sizes)) >= 3


def test_two_models_are_compared_side_by_side(shown):
    page = shown()
    page.run("a b c", model="reverse", other="plain")
    assert page.page.get_by_role("region").count() == 2
    one, other = (page.page.get_by_role("region", name=name) for name in ("reverse", "plain"))
    assert one.bounding_box()["y"] == other.bounding_box()["y"]
    assert one.get_by_role("tab").count() == 5
    assert other.get_by_role("tab").count() == 0
    assert other.locator(".note").text_content().startswith("This model has no attention: ")


@pytest.mark.parametrize(("width", "beside"), [(1200, True), (380, False)])
def test_the_views_of_one_model_stand_beside_its_answers_where_there_is_room(shown, width, beside):
    page = shown(viewport={"width": width, "height": 900})
    page.run("a b c", model="reverse")
    answers, views = (page.page.locator(name).bounding_box() for name in (".answers", ".host"))
    assert (answers["x"] + answers["width"] <= views["x"]) == beside
    assert (answers["y"] + answers["height"] <= views["y"]) == (not beside)
    assert page.page.evaluate("document.documentElement.scrollWidth") == width


def test_answers_say_what_they_are_ranked_by(shown):
    page = shown()
    page.run("a b c", model="reverse")
    legend = page.page.locator("legend")
    assert legend.text_content() == "Results (best first)"
    assert legend.get_attribute("title") == "Ranked by log-probability with length penalty"
    page.run("the c", model="gpt", max_tokens="3", nbest="2")
    assert legend.text_content() == "Results (best first)"
    assert legend.get_attribute("title") is None


def test_defaults_are_placeholders(shown):
    page = shown()
    nbest, beam = page.page.get_by_label("Results"), page.page.get_by_label("Beam size")
    assert (nbest.get_attribute("placeholder"), beam.get_attribute("placeholder")) == ("default (5)", "default (5)")
    page.page.locator("[name=model]").select_option("gpt")
    assert (nbest.get_attribute("placeholder"), beam.get_attribute("placeholder")) == ("default (1)", "default (off)")


def test_sampling_options_are_sent(shown, predictors):
    page = shown()
    assert not page.page.get_by_label("Top-k").is_visible()
    page.page.locator("[name=model]").select_option("gpt")
    page.run("the c", max_tokens="9", seed="4", temperature="0.8", top_k="3", top_p="0.9")
    expected = predictors["gpt"].generate("the c", max_tokens=9, seed=4, temperature=0.8, top_k=3, top_p=0.9)
    assert page.outputs() == [f"the c{expected.text}"]
    assert "top_k=3&top_p=0.9" in page.page.url


def test_greedy_turns_off_sampling(shown, predictors):
    page = shown()
    page.page.locator("[name=model]").select_option("gpt")
    page.page.get_by_label("Greedy").check()
    for name in ("Temperature", "Top-k", "Top-p", "Seed"):
        assert page.page.get_by_label(name).is_disabled()
    page.run("the c", max_tokens="9")
    assert page.outputs() == [f"the c{predictors['gpt'].generate('the c', max_tokens=9, greedy=True).text}"]
    again = shown(f"#{page.page.url.partition('#')[2]}")
    again.done()
    assert again.page.get_by_label("Greedy").is_checked()
    assert again.outputs() == page.outputs()


def test_every_control_is_explained(shown):
    page = shown()
    page.page.locator("[name=model]").select_option("gpt")
    unexplained = """() => [...document.querySelectorAll("button, [data-option]")]
        .filter((each) => each.checkVisibility() && !each.title).map((each) => each.textContent)"""
    assert page.page.evaluate(unexplained) == []


def test_another_answer_can_be_looked_at(shown, predictors):
    page = shown()
    page.run("a b c", model="reverse")
    second = predictors["reverse"].predict("a b c", nbest=5).alternatives[1].text
    page.page.get_by_role("radio").nth(1).check()
    assert page.outputs() == [second]
    page.drawn()
    page.page.get_by_role("tab", name="Words").click()
    rows = page.page.get_by_role("listbox", name="Queries")
    assert rows.get_by_role("option").all_text_contents() == [*second.split(), "<eos>"]
    assert "best0=1" in page.page.url


def test_the_link_restores_what_is_seen(shown):
    page = shown()
    page.run("a b c d", model="reverse", other="transformer", words="tokens", nbest="3")
    one = page.page.get_by_role("region", name="reverse")
    one.get_by_role("radio").nth(2).check()
    page.drawn()
    one.get_by_role("tab", name="Words").click()
    one.get_by_role("listbox", name="Keys").get_by_role("option").nth(1).click()
    page.page.get_by_role("region", name="transformer").get_by_label("Head").select_option("1")
    description, url = page.description(), page.page.url
    again = shown(f"#{url.partition('#')[2]}")
    again.done()
    assert again.outputs() == page.outputs()
    assert again.description() == description
    assert again.page.url == url
    assert again.page.get_by_role("region", name="reverse").get_by_role("radio").nth(2).is_checked()
    assert again.page.get_by_role("region", name="transformer").get_by_label("Head").input_value() == "1"


def test_an_address_without_a_text_shows_nothing(shown):
    page = shown()
    page.run("a b c", model="reverse")
    page.page.evaluate("location.hash = ''")
    page.page.get_by_role("region").wait_for(state="detached")
    assert page.page.locator("#panes").text_content() == ""
    assert page.page.locator("#status").text_content().strip() == ""
    page.run("a b", model="reverse")
    assert page.outputs() == ["b a"]


@pytest.mark.parametrize("hash_", ["#model=nothing&text=a+b", "#view0=x&layer0=99&text=a+b", "#pinned0=row99&text=a+b"])
def test_a_link_that_means_nothing_is_no_trouble(shown, hash_):
    page = shown(hash_)
    page.done()
    assert page.outputs() == ["b a"]


def test_an_error_is_told_in_one_line(shown):
    page = shown()
    page.page.locator("[name=text]").fill("a")
    page.page.locator("[name=beam]").fill("2")
    page.page.locator("[name=nbest]").fill("3")
    page.page.get_by_role("button", name="Run").click()
    line = "predict: nbest must be at most beam (2), got 3"
    page.page.get_by_role("alert").get_by_text(line).wait_for()
    assert page.page.get_by_role("alert").text_content() == f"reverse: {line}"
    assert all("422" in text for text in page.wrong)
    page.wrong.clear()


@pytest.mark.parametrize("model", ["tag", "label", "text"])
def test_words_are_text_and_never_markup(shown, model):
    page = shown()
    page.run(HOSTILE, model=model, **({"max_tokens": "2"} if model == "text" else {}))
    assert page.page.locator("script").count() == 1
    assert page.page.locator("img").count() == 0
    if model != "label":
        assert "<script>" in page.outputs()[0].replace(" ", "") or "script" in page.outputs()[0]
        assert "\u202e" not in page.outputs()[0]
        assert "\x1b" not in page.outputs()[0]


def test_the_policy_lets_nothing_else_run(shown):
    page = shown()
    program = """() => {
        try { document.body.insertAdjacentHTML("beforeend", "<b>markup</b>"); } catch (error) { return error.name; }
        return "it was let in";
    }"""
    assert page.page.evaluate(program) == "TypeError"
    assert all("TrustedHTML" in text for text in page.wrong)
    page.wrong.clear()


def test_two_thousand_words(shown):
    page = shown()
    words = " ".join(f"w{number % 97}" for number in range(2000))
    page.run(words, model="tag")
    assert page.page.locator(".tag").count() == 2000
    assert page.page.locator(".scale").text_content().endswith("weights per row")
    page.page.get_by_role("tab", name="Matrix").click()
    page.drawn()
    assert page.page.locator(".panel canvas").first.is_visible()


def test_all_is_done_with_the_keyboard(shown):
    page = shown()
    page.page.locator("[name=text]").focus()
    page.page.keyboard.type("a b c")
    page.page.keyboard.press("Control+Enter")
    page.done()
    reached = []
    program = "() => document.activeElement.getAttribute('aria-label') || document.activeElement.name || document.activeElement.textContent"  # noqa: E501
    for _ in range(9):
        page.page.keyboard.press("Tab")
        reached.append(page.page.evaluate(program))
    assert reached[:7] == ["nbest", "beam", "words", "run", "copy", "best-reverse", "Lines"]
    page.page.keyboard.press("ArrowDown")
    assert page.outputs() == ["c b a"]


def test_every_field_and_region_has_a_name(shown):
    page = shown()
    page.page.locator("[name=other]").select_option("gpt")
    page.run("a b c", max_tokens="3")
    program = """() => [...document.querySelectorAll("input, select, textarea, button")]
        .filter((each) => each.checkVisibility())
        .filter((each) => !each.labels?.length && !each.textContent && !each.ariaLabel).map((each) => each.outerHTML)"""
    assert page.page.evaluate(program) == []
    assert page.page.get_by_role("status").count() >= 1
    assert page.page.evaluate("document.documentElement.lang") == "en"


@pytest.mark.parametrize(
    ("model", "scheme"), [("reverse", "light"), ("gpt", "dark"), ("label", "light"), ("tag", "dark")]
)
def test_nothing_is_cut_off_on_a_telephone(shown, model, scheme):
    page = shown("#max_tokens=2", viewport={"width": 380, "height": 700}, color_scheme=scheme)
    page.run("a b c" if model == "gpt" else "a b c " * 4, model=model, other="transformer", words="tokens")
    assert page.page.evaluate("document.documentElement.scrollWidth") == 380
    light = page.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")


def test_the_theme_turns_all_of_the_page(shown):
    page = shown(color_scheme="light")
    page.run("a b c", model="reverse")
    button = page.page.locator("nav button")
    for name, color in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 21, 27)"), ("auto", "rgb(255, 255, 255)")):
        button.click()
        assert button.get_attribute("aria-label") == f"Theme: {name}"
        for part in ("html", ".regard"):
            shade = page.page.locator(part).first.evaluate("each => getComputedStyle(each).backgroundColor")
            assert shade == color


def test_a_run_can_be_stopped(shown, models, monkeypatch):
    handler = models["gpt"].worker.handler

    def slow(requests, handle=handler.handle):  # so that it does not end before the click
        for events in handle(requests):
            time.sleep(0.01)
            yield events

    monkeypatch.setattr(handler, "handle", slow)
    page = shown()
    page.page.locator("[name=model]").select_option("gpt")
    page.page.locator("[name=max_tokens]").fill("1000")
    page.page.locator("[name=text]").fill("the")
    page.page.get_by_role("button", name="Run").click()
    page.page.locator(".written").filter(has_text=re.compile(".{3}")).wait_for()
    page.page.get_by_role("button", name="Stop").click()
    page.page.get_by_text("Stopped.").wait_for()
    page.page.wait_for_timeout(200)
    assert models["gpt"].worker.open_count == 0
    assert page.page.get_by_role("button", name="Stop").is_disabled()


def test_a_token_is_asked_for(shown, models):
    with running(models, token="right") as client:
        page = shown(address=client.address)
        field = page.page.get_by_label("Token", exact=True)
        field.wait_for()
        for shown_token in ("wrong", "right"):
            assert page.page.get_by_role("alert").text_content().startswith("missing or wrong bearer token")
            field.fill(shown_token)
            page.page.get_by_role("button", name="Sign in").click()
            page.page.wait_for_timeout(300)
        page.run("a b", model="reverse")
        assert page.outputs() == ["b a"]
        assert "right" not in page.page.url
        assert all("401" in text for text in page.wrong)
        page.wrong.clear()
        page.page.close()


def test_labels_and_tags(shown, predictors):
    page = shown()
    page.run("who is she", model="label", other="tag")
    label = predictors["label"].predict("who is she", nbest=2)
    assert page.page.get_by_role("region", name="label").locator(".output").text_content() == label.labels[0]
    shares = page.page.locator(".best .number").all_text_contents()
    assert shares == [f"{round(each.probability, 3):g}" for each in label.ranked]
    tags = predictors["tag"].predict("who is she")
    assert page.page.locator(".tag bdi").all_text_contents() == list(tags.words)
    assert page.page.locator(".tag .name").all_text_contents() == list(tags.tags)


def test_a_second_text_is_asked_for_where_there_is_one(shown, client, predictors):
    page = shown()
    page.page.locator("[name=second]").wait_for(state="hidden")
    page.page.locator("[name=model]").select_option("label-pairs")
    page.run("who is", second="she")
    body = {"model": "label-pairs", "text": "who is", "second": "she"}
    picture = AttentionMap.from_record(client.ask("/api/look", body).json)
    page.page.get_by_role("listbox", name="Keys").get_by_role("option").first.click()
    assert page.description().endswith(f"{round(float(picture.weights[0, 0, 0, 0]), 3):g}")


def test_the_interface_is_listed(shown):
    page = shown("docs")
    page.page.get_by_role("heading", name="POST /api/predict").wait_for()
    headings = page.page.get_by_role("heading", level=2).all_text_contents()
    assert headings == [
        "GET /api/models",
        "POST /api/predict",
        "POST /api/look",
        "POST /api/stream",
        "GET /health",
        "GET /ready",
        "GET /metrics",
        "Schemas",
    ]
    assert page.page.get_by_role("rowheader", name="length_penalty").count() == 2


def test_the_names_of_the_interface_are_whole_on_a_telephone(shown):
    page = shown("docs", viewport={"width": 380, "height": 700})
    name = page.page.get_by_role("rowheader", name="length_penalty").first
    name.wait_for()
    assert name.bounding_box()["width"] > 100  # on one line
    assert page.page.evaluate("document.documentElement.scrollWidth") == 380
