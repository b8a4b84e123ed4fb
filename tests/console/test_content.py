"""What a run says: markdown while it streams, values as trees, changes as diffs; and all of it as an attack."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from .conftest import Site
from .console import prompt, run_state
from .site import ATTACK, MARKDOWN

pytestmark = [pytest.mark.promise("P4"), pytest.mark.timeout(180)]


def test_an_answer_is_markdown_while_it_streams(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "draft it")  # it stalls in the middle
    words = page.locator(".entry.assistant .blocks > .md").first
    expect(words.locator("strong", has_text="important")).to_be_visible()
    expect(page.locator("#stop")).to_be_visible()  # it is still being written
    page.keyboard.press("Escape")
    run_state(page, "Stopped")
    page.goto(site.url)
    prompt(page, "markdown please")
    run_state(page, "Finished")
    expect(words.locator("h3")).to_have_text("The plan")
    expect(words.locator("em")).to_have_text("quick")
    expect(words.locator("ol > li")).to_have_count(2)
    expect(words.locator("ol ul > li")).to_have_text(["nested", "list"])
    expect(words.locator("table td").nth(3)).to_have_text("340")
    expect(words.locator("blockquote")).to_contain_text("A quote that\ngoes on.")
    expect(words.locator("pre code")).to_have_text("def add(a: int, b: int) -> int:\n    return a + b")
    link = words.get_by_role("link", name="a link")
    expect(link).to_have_attribute("href", "https://example.org/page")
    expect(link).to_have_attribute("rel", re.compile("noopener"))
    expect(words.locator("p", has_text="שלום")).to_have_attribute("dir", "auto")
    assert words.locator("p", has_text="שלום").evaluate("e => getComputedStyle(e).direction") == "rtl"


def test_thinking_is_shown_live_and_folded_afterwards(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "ponder it")  # it thinks until it is steered
    thinking = page.locator(".thinking").first
    expect(thinking.locator(".words")).to_contain_text("A plan")
    expect(thinking).to_have_attribute("open", "")
    page.fill("#draft", "markdown please")
    page.keyboard.press("Enter")
    expect(thinking).not_to_have_attribute("open", "")
    thinking.locator("summary").click()
    run_state(page, "Finished")
    expect(thinking.locator(".words")).to_be_visible()  # what a person opened stays open


def test_results_are_trees_and_changes_are_diffs(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "markdown please")
    run_state(page, "Finished")
    tool = page.get_by_role("group", name="Tool look_up")
    tool.locator("summary", has_text="Arguments and result").click()
    tree = tool.get_by_role("group", name="Result of look_up")
    many = tree.locator("details", has=page.locator("summary", has_text="many"))
    expect(many.locator("li")).to_have_count(0)  # nothing is made before it is looked at
    many.locator("summary").click()
    expect(many.locator("li")).to_have_count(101)
    many.get_by_role("button", name="Show 100 of 150 more").click()
    expect(many.locator("li")).to_have_count(201)
    expect(tree).to_contain_text('name: "plan"')
    change = page.get_by_role("group", name="Tool patch").get_by_role("group", name="Change by patch")
    expect(change.locator(".diff-removed")).to_have_text("-b\n")
    expect(change.locator(".diff-added")).to_have_text("+B\n")


def test_code_and_answers_are_copied_as_they_were_written(context: BrowserContext, page: Page, site: Site) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(site.url)
    prompt(page, "markdown please")
    run_state(page, "Finished")
    page.get_by_role("button", name="Copy the code").click()
    expect(page.locator(".code .copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "def add(a: int, b: int) -> int:\n    return a + b"
    page.get_by_role("button", name="Copy the answer").first.click()
    expect(page.locator(".entry > .copy").first).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == MARKDOWN.strip()


MIXED = "**a *b* c** `x\n\n- a\n- b\n\n  c\n\n1) x\n> q\n\n|a|b|\n|-|-|\n|c"


def test_a_text_in_pieces_looks_like_the_whole_text(page: Page, site: Site) -> None:
    page.goto(site.url)
    for text in (MARKDOWN, ATTACK, MIXED):
        whole, pieces = page.evaluate(
            """async (text) => {
              const { Markdown } = await import("./static/markdown.js");
              const [whole, pieces] = [new Markdown(), new Markdown()];
              whole.update(text, true);
              for (let end = 1; end <= text.length; end++) pieces.update(text.slice(0, end), false);
              pieces.update(text, true);
              const told = (view) => new XMLSerializer().serializeToString(view.element);
              return [told(whole), told(pieces)];
            }""",
            text,
        )
        assert pieces == whole


def test_a_long_text_in_pieces_looks_like_the_whole_text(page: Page, site: Site) -> None:
    """Sections are made of it. None is in the document here, so none is near the view."""
    page.goto(site.url)
    whole, pieces, shown, drawn = page.evaluate("""async () => {
      const { Markdown } = await import("./static/markdown.js");
      const text = Array.from({ length: 400 }, (_, n) => `# Part ${n}\n\nwords\n\n- a\n- b\n\n`).join("");
      const [whole, pieces] = [new Markdown(), new Markdown()];
      whole.update(text, true);
      for (let end = 0; end <= text.length; end += 97) pieces.update(text.slice(0, end), false);
      pieces.update(text, true);
      const numbers = (view) => [...view.element.children].map((each) => each.className || each.nodeName);
      document.getElementById("main").replaceChildren(pieces.element);
      const all = () => pieces.element.querySelectorAll("h3").length;
      const shown = all();
      scrollTo(0, 0);
      const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
      for (let turn = 0; turn < 300 && all() > 200; turn++) await frame();
      return [numbers(whole), numbers(pieces), shown, all()];
    }""")
    assert pieces == whole
    assert shown == 400
    assert drawn < 200


def test_a_selection_in_a_growing_answer_stays(page: Page, site: Site) -> None:
    page.goto(site.url)
    kept = page.evaluate("""async () => {
      const { Markdown } = await import("./static/markdown.js");
      const view = new Markdown();
      document.body.append(view.element);
      view.update("Some **bold** words\\n\\n- an item", false);
      const bold = view.element.querySelector("strong").firstChild;
      getSelection().selectAllChildren(bold.parentNode);
      view.update("Some **bold** words\\n\\n- an item and more\\n- *another*", false);
      return [getSelection().toString(), bold.isConnected, view.element.querySelectorAll("li").length];
    }""")
    assert kept == ["bold", True, 2]


# --- As an attack ----------------------------------------------------------------------------------------------------


def test_markdown_and_results_as_an_attack_run_nothing_and_load_nothing(page: Page, site: Site) -> None:
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    page.goto(site.url)
    prompt(page, "attack")
    run_state(page, "Finished")
    for _ in range(3):  # what is inside is made when it is opened
        page.locator("details").evaluate_all("all => all.forEach((e) => { e.open = true; })")
    expect(page.locator(".md", has_text="[click](javascript:window.hacked=1)").first).to_be_visible()
    expect(page.locator(".json-tree", has_text="javascript:").first).to_be_visible()
    assert page.evaluate("window.hacked") is None
    bad = ("img", "script", "iframe", "style", "link", "object", "embed", "form:not(.composer)", "base", "meta")
    assert page.locator(f"main :is({', '.join(bad)})").count() == 0
    names = "[...document.querySelectorAll('main *')].flatMap((e) => [...e.attributes].map((a) => a.name))"
    assert not [name for name in set(page.evaluate(names)) if name.startswith("on")]
    links = page.locator(".md a").evaluate_all("all => all.map(a => [a.protocol, a.rel, a.target, a.username])")
    assert links
    assert {tuple(each) for each in links} == {("https:", "noopener noreferrer nofollow", "_blank", "")}
    assert all(url.startswith(site.url) for url in loaded), loaded


ENDLESS = [
    "[" * 60_000,
    "*a " * 20_000,
    "**a* " * 12_000,
    ">" * 60_000,
    "[a](" * 15_000,
    "|a" * 30_000 + "\n" + "|-" * 30_000,
]


def test_no_text_holds_the_page_for_long(page: Page, site: Site) -> None:
    page.goto(site.url)
    for text in ENDLESS:
        took = page.evaluate(
            """async (text) => {
              const { Markdown } = await import("./static/markdown.js");
              const begin = performance.now();
              new Markdown().update(text, true);
              return performance.now() - begin;
            }""",
            text,
        )
        assert took < 5000, (text[:10], took)


def test_code_has_colours_and_the_same_text(page: Page, site: Site) -> None:
    page.goto(site.url)
    found = page.evaluate(
        """async () => {
          const { Markdown } = await import("./static/markdown.js");
          const code = {
            python: 'def f(x):  # note\\n    return "a # b" + str(1.5)\\n',
            sql: "SELECT name FROM t -- all\\nWHERE id = 7",
            js: "const a = `x\\ny`; /* b\\nc */ if (a) {}",
            cobol: "MOVE 1 TO A",
            constructor: "toString",
            html: "<script>window.hacked=1</script>",
          };
          const told = {};
          for (const [language, text] of Object.entries(code)) {
            const view = new Markdown();
            view.update("```" + language + "\\n" + text + "\\n```\\n", true);
            const parts = [...view.element.querySelectorAll(".code-part")].map((part) => part.textContent).join("\\n");
            const kinds = (kind) => [...view.element.querySelectorAll(`.hl-${kind}`)].map((each) => each.textContent);
            told[language] = [parts === text, kinds("keyword"), kinds("string"), kinds("comment"), kinds("number")];
          }
          return told;
        }"""
    )
    assert found == {
        "python": [True, ["def", "return"], ['"a # b"'], ["# note"], ["1.5"]],
        "sql": [True, ["SELECT", "FROM", "WHERE"], [], ["-- all"], ["7"]],
        "js": [True, ["const", "if"], ["`x", "y`"], ["/* b", "c */"], []],
        "cobol": [True, [], [], [], []],
        "constructor": [True, [], [], [], []],
        "html": [True, [], [], [], []],
    }


def test_a_megabyte_of_code_is_few_nodes_that_grow_at_the_end(page: Page, site: Site) -> None:
    """What is complete is not touched while the rest is written, and what is not seen is not laid out."""
    page.goto(site.url)
    nodes, touched, same, skipped = page.evaluate(
        """async () => {
          const { Markdown } = await import("./static/markdown.js");
          const code = "    value = compute(first, 'second', 3)  # a comment\\n".repeat(20_000);
          const text = "```python\\n" + code + "```\\n";
          const view = new Markdown();
          document.getElementById("main").replaceChildren(view.element);
          view.update(text.slice(0, 600_000), false);
          const first = view.element.querySelector(".code-part");
          const records = [];
          const watch = new MutationObserver((more) => records.push(...more));
          watch.observe(first, { childList: true, characterData: true, subtree: true });
          for (let end = 608_192; end < text.length; end += 8192) view.update(text.slice(0, end), false);
          view.update(text, true);
          await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
          const parts = [...view.element.querySelectorAll(".code-part")];
          const same = parts.map((part) => part.textContent).join("\\n") + "\\n" === code;
          const last = getComputedStyle(parts.at(-2)).contentVisibility;
          return [view.element.querySelectorAll("*").length, records.length, same && parts[0] === first, last];
        }"""
    )
    assert (touched, same, skipped) == (0, True, "auto")
    assert nodes < 300


def test_a_long_paragraph_shows_every_space_while_it_is_not_parsed(page: Page, site: Site) -> None:
    page.goto(site.url)
    shown = page.evaluate(
        """async () => {
          const { Markdown } = await import("./static/markdown.js");
          const view = new Markdown(), text = "word ".repeat(2000);
          view.update(text, false);
          view.cost = Infinity; // what is new is only appended from here on
          for (const more of ["word ", "word ", "word"]) view.update(view.text + more, false);
          return view.element.textContent;
        }"""
    )
    assert shown == "word " * 2002 + "word"


def test_a_conversation_is_exported_as_markdown_and_as_json(page: Page, site: Site) -> None:
    page.goto(site.url)
    prompt(page, "markdown please")
    run_state(page, "Finished")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export the conversation as Markdown").click()
    text = saved.value.path().read_text("utf-8")
    assert saved.value.suggested_filename.endswith(".md")
    assert text.startswith("## You\n\nmarkdown please\n\n## Agent\n\n")
    assert MARKDOWN.strip() in text
    assert "### Tool patch\n\n```json\n" in text
    assert "### Result of patch\n\n```\n--- a.py" in text
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export the conversation as JSON").click()
    whole = json.loads(saved.value.path().read_text("utf-8"))
    assert [message["type"] for message in whole["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert len(whole["runs"]) == 1
