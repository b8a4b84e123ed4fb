"""The web app of docs/tutorial.md: `pip install "quiesce[openai]" fastapi uvicorn`, then `uvicorn bakery:app`."""

from fastapi import Body, FastAPI, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from quiesce import Agent, Run, tool
from quiesce.server import stop_on_disconnect


@tool
async def find_recipe(dish: str) -> str:
    """Find a recipe in the baker's book.

    Args:
        dish: what to bake
    """
    return f"{dish}: 500 g flour, 75 g sugar, 250 ml milk, cinnamon"


agent = Agent("openai:gpt-5-mini", tools=[find_recipe], store="bakery.db")

app = FastAPI()
runs: dict[str, Run] = {}


@app.post("/chat/{user}")
async def chat(user: str, request: Request, prompt: str = Body(embed=True)) -> StreamingResponse:
    run = runs[user] = agent.start(prompt, session=user, on_busy="cancel_previous")
    stop_on_disconnect(request, run)
    return StreamingResponse(run.text_stream(), media_type="text/plain")


@app.post("/stop/{user}")
async def stop(user: str) -> dict[str, str]:
    run = runs[user]
    run.cancel("the Stop button")
    return {"receipt": str(await run.stopped())}


PAGE = """
<!doctype html><title>Bakery</title>
<pre></pre>
<form><input autofocus> <button>Send</button> <button type="button">Stop</button></form>
<script>
const [log, form, field] = ["pre", "form", "input"].map((name) => document.querySelector(name));
const post = (path, body) =>
  fetch(path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
form.onsubmit = async (event) => {
  event.preventDefault();
  log.append("> " + field.value + "\\n");
  const answer = await post("/chat/ann", {prompt: field.value});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let piece; !(piece = await reader.read()).done; ) log.append(piece.value);
  log.append("\\n");
};
form.querySelector("[type=button]").onclick = async () =>
  log.append("\\n" + (await (await post("/stop/ann", {})).json()).receipt + "\\n");
</script>
"""


@app.get("/")
async def page() -> HTMLResponse:
    return HTMLResponse(PAGE)
