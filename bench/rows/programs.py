"""The programs that are started anew in each round: what a first program imports, and one that sends one prompt."""

from __future__ import annotations

from typing import Final

from ..ready import CHUNKS

IMPORTS: Final = {
    "lines": "import asyncio, json, httpx",
    "floor": "import asyncio, httpx2, msgspec",
    "quiesce": "from quiesce import *",
    "pydantic_ai": "from pydantic_ai import Agent; from pydantic_ai.models.openai import OpenAIChatModel",
    "openai_agents": "from agents import Agent, Runner, function_tool",
    "strands": "from strands import Agent, tool; from strands.models.openai import OpenAIModel",
    "agno": "from agno.agent import Agent; from agno.models.openai import OpenAIChat",
}
IMPORT: Final = """
import json, os, time
cpu, wall = time.process_time(), time.perf_counter()
{imports}
took = {{"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}}
with open("/proc/self/statm") as found:
    print(json.dumps(took | {{"memory": int(found.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")}}))
"""

_BODY: Final = '{"model": "gpt-4o-mini", "stream": True, "messages": [{"role": "user", "content": "Go."}]}'
_LINES: Final = f"""
import asyncio, json, os, httpx

async def main():
    text = ""
    async with httpx.AsyncClient() as client:
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        async with client.stream("POST", url, json={_BODY}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    for choice in json.loads(line[6:])["choices"]:
                        text += choice["delta"].get("content") or ""
    return text

text = asyncio.run(main())
"""
_FLOOR: Final = f"""
import asyncio, os, httpx2, msgspec

class Delta(msgspec.Struct):
    content: str | None = None

class Choice(msgspec.Struct):
    delta: Delta

class Chunk(msgspec.Struct):
    choices: list[Choice]

async def main():
    text, rest, decode = "", b"", msgspec.json.Decoder(Chunk).decode
    async with httpx2.AsyncClient() as client:
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        async with client.stream("POST", url, json={_BODY}) as answer:
            async for data in answer.aiter_raw():
                *events, rest = (rest + data).split(b"\\n\\n")
                for each in events:
                    if each != b"data: [DONE]":
                        text += "".join(choice.delta.content or "" for choice in decode(each[6:]).choices)
    return text

text = asyncio.run(main())
"""
_QUIESCE: Final = """
from quiesce import Agent

text = Agent("openai-chat:gpt-4o-mini")("Go.").text
"""
_PYDANTIC_AI: Final = """
import asyncio
from pydantic_ai import Agent

async def main():
    async with Agent("openai-chat:gpt-4o-mini").run_stream("Go.") as result:
        return await result.get_output()

text = asyncio.run(main())
"""
_OPENAI_AGENTS: Final = """
import asyncio
from agents import Agent, Runner, set_default_openai_api, set_tracing_disabled

set_tracing_disabled(True)
set_default_openai_api("chat_completions")

async def main():
    result = Runner.run_streamed(Agent("bench", model="gpt-4o-mini"), "Go.")
    async for _ in result.stream_events():
        pass
    return result.final_output

text = asyncio.run(main())
"""
_STRANDS: Final = """
import asyncio
from strands import Agent
from strands.models.openai import OpenAIModel

async def main():
    agent = Agent(model=OpenAIModel(model_id="gpt-4o-mini"), callback_handler=None)
    return str(await agent.invoke_async("Go."))

text = asyncio.run(main())
"""
_AGNO: Final = """
import asyncio
from agno.agent import Agent, RunContentEvent
from agno.models.openai import OpenAIChat

async def main():
    text, agent = "", Agent(model=OpenAIChat(id="gpt-4o-mini"), telemetry=False)
    async for event in agent.arun("Go.", stream=True, stream_events=True):
        if isinstance(event, RunContentEvent):
            text += str(event.content or "")
    return text

text = asyncio.run(main())
"""
# As where `quiesce[openai]` is not installed: a stopped answer is estimated then, not counted.
_NO_VOCABULARY: Final = """
import sys
sys.modules["splintr"] = None
"""
_CHECK: Final = f"\nassert len(text.split()) == {CHUNKS}, text\n"
READY: Final = {
    "lines": _LINES + _CHECK,
    "floor": _FLOOR + _CHECK,
    "quiesce": _QUIESCE + _CHECK,
    "no_vocabulary": _NO_VOCABULARY + _QUIESCE + _CHECK,
    "pydantic_ai": _PYDANTIC_AI + _CHECK,
    "openai_agents": _OPENAI_AGENTS + _CHECK,
    "strands": _STRANDS + _CHECK,
    "agno": _AGNO + _CHECK,
}
