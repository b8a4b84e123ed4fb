"""The JavaScript client: its operations and types are those of the OpenAPI document, and its streams are resumed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from quiesce.server.app import STATIC
from quiesce.server.openapi import OPERATIONS

from .conftest import ROOT, Site

sys.path.insert(0, str(ROOT / "tools"))
from javascript_types import FILE, camel_case, types

pytestmark = [pytest.mark.promise("P8"), pytest.mark.timeout(180)]

# Calls each method with one value for each part of its path and options for the rest, and notes the requests.
CALL = """async (operations) => {
  const { Client } = await import("./static/client.js");
  const made = [];
  const fetch = async (url, { method, body, headers }) => {
    made.push([method, url.pathname, Object.fromEntries(url.searchParams), body ?? null, Object.keys(headers).sort()]);
    return new Response(null, { status: 204 });
  };
  const client = new Client("http://server.example/below", { key: "secret", fetch });
  for (const [name, parts, body, options] of operations) {
    const given = [...parts, ...(body === null ? [] : [body]), options];
    const answer = client[name](...given);
    if (answer[Symbol.asyncIterator]) await answer.next().catch(() => {});
    else await answer;
  }
  return [made, Object.getOwnPropertyNames(Client.prototype).filter((name) => name !== "constructor")];
}"""


def test_every_operation_of_the_server_is_a_method_with_its_parameters(page: Page, site: Site) -> None:
    page.goto(site.url)
    calls: list[Any] = []
    wanted: list[Any] = []
    for each in OPERATIONS:
        parts = [f"{name}/1" for name in re.findall(r"{(\w+)}", each.path)]
        names = [one["name"] for one in each.parameters if one["in"] == "query" and not each.stream]
        query = dict.fromkeys([*names, *(["wait"] if each.waits else [])], "7")
        headers = ["Authorization"] + (["Content-Type"] if each.body else [])
        has_key = any(one["name"] == "Idempotency-Key" for one in each.parameters)
        options: dict[str, Any] = (
            query | ({"idempotencyKey": "k"} if has_key else {}) | ({"after": 5} if each.stream else {})
        )
        headers += (["Idempotency-Key"] if has_key else []) + (["Accept", "Last-Event-ID"] if each.stream else [])
        if each.stream:
            options["patience"] = -1
        calls.append([camel_case(each.id), parts, {"x": 1} if each.body else None, options])
        path = "/below" + re.sub(r"{(\w+)}", r"\1%2F1", each.path)
        wanted.append([each.method.upper(), path, query, '{"x":1}' if each.body else None, sorted(headers)])
    made, methods = page.evaluate(CALL, calls)
    asked_whether_over = ["GET", "/below/runs/id%2F1", {}, None, ["Authorization"]]
    assert [each for each in made if each != asked_whether_over] == [
        each for each in wanted if each != asked_whether_over
    ]
    assert sorted(methods) == sorted(camel_case(each.id) for each in OPERATIONS)


def test_the_types_are_those_of_the_document() -> None:
    assert FILE.read_text("utf-8") == types(), "run: python tools/javascript_types.py"


@pytest.mark.promise("P3")
def test_a_stream_that_is_cut_goes_on_where_it_was(page: Page, site: Site) -> None:
    page.goto(site.url)
    run_id = page.request.post(f"{site.url}runs", data={"prompt": "markdown please"}).json()["run"]["id"]
    problems, numbers, last = page.evaluate(
        """async ([url, id]) => {
          const { Client } = await import("./static/client.js");
          let left = 3;
          const cutting = async (address, options) => {
            const response = await fetch(address, options);
            if (!left-- || left < 0) return response;
            let room = 2_000;
            const cut = new TransformStream({ transform(chunk, flow) {
              flow.enqueue(chunk.slice(0, room));
              room -= chunk.length;
              if (room <= 0) flow.error(new TypeError("cut"));
            } });
            return new Response(response.body.pipeThrough(cut), { status: response.status });
          };
          const problems = [];
          const numbers = [];
          let last;
          const onConnection = (problem) => problem && problems.push(problem.message);
          const client = new Client(url, { fetch: cutting });
          for await (const { number, event } of client.streamEvents(id, { onConnection })) {
            numbers.push(number);
            last = event.type;
          }
          return [problems.length, numbers, last];
        }""",
        [site.url, run_id],
    )
    assert problems == 3
    assert numbers == list(range(1, len(numbers) + 1))
    assert last == "run_ended"


PROGRAM = """
import { Client, ServerProblem, insist } from "./client.js";

const client = new Client("http://127.0.0.1:8765", { key: "..." });
const picture = { type: "image" as const, media_type: "image/png", data: "" };
const { run } = await client.startRun({ prompt: [{ type: "text", text: "Hi" }, picture] });
for await (const { number, event } of client.streamEvents(run.id, { after: 0 })) {
  if (event.type === "text") console.log(event.text.length);
  if (event.type === "run_ended") console.log(event.receipt.latency);
  const place: number = number;
}
const { receipt } = await client.cancelRun(run.id, { reason: "enough" }, { wait: 10 });
const known: string[] = receipt?.calls.map((call) => call.outcome) ?? [];
const detail = await insist(() => client.showRun(run.id));
await client.health().catch((error) => error instanceof ServerProblem && console.log(error.code, error.text));
%s
"""
WRONG = [
    "client.showRun(7);",
    "run.no_such_field;",
    "client.startRun({});",
    "client.startNothing();",
    "client.listRuns({ limt: 3 });",
]


@pytest.mark.proof
def test_typescript_takes_a_right_program_and_refuses_wrong_ones(tmp_path: Path) -> None:
    tsc = shutil.which("tsc", path=f"{ROOT / '.venv/node/node_modules/.bin'}:/usr/bin:/usr/local/bin")
    if tsc is None:
        pytest.skip("THE TYPES ARE NOT TRIED WITH TYPESCRIPT: there is no tsc here (make proof installs it)")
    (tmp_path / "client.d.ts").write_text(FILE.read_text("utf-8"), "utf-8")
    (tmp_path / "written.js").write_text((STATIC / "client.js").read_text("utf-8"), "utf-8")
    same = (
        'import { Client as W } from "./written.js"; import { Client as D } from "./client.js"; const d: D = new W("");'
    )
    for number, line in enumerate(["", *WRONG, same]):
        text = line if line == same else PROGRAM % line
        (tmp_path / f"p{number}.ts").write_text(text + "\nexport {};\n", "utf-8")
        command = [tsc, "--noEmit", "--strict", "--allowJs", "--target", "es2022", "--module", "esnext"]
        command += ["--moduleResolution", "bundler", "--lib", "es2023,dom,dom.iterable", f"p{number}.ts"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (line in ("", same)), f"{line}\n{done.stdout}"
