"""Cases from public trackers: what people met elsewhere when they stopped an agent, and what must hold here.

`CASES` have a test that is marked with `@pytest.mark.case(id)`. `LATER` need something that is not built yet; the
reason says what. `test_promises.py` keeps both lists true.
"""

from typing import Final

CASES: Final = {
    # The stop breaks the conversation
    "langgraph#6726": "a call whose tool was stopped is answered, so the next request is accepted",
    "agent-chat-ui#80": "after a stop in a tool the next prompt works",
    "crush#529": "no call is left without its result",
    "pydantic-ai#7977": "a stop in the first tool leaves a conversation that goes on",
    "claude-code#2039": "stopping a tool does not spoil the conversation",
    "claude-code#12162": "stopping a tool does not spoil the conversation, whichever tool it was",
    "aegra#191": "a torn call is cut, a finished one answered: none is an orphan",
    "strands#two-user-messages": "after a stop a user message never follows a user message",
    "agno#prompt-gone": "the prompt of a stopped run stays in the conversation",
    # The stop throws work away
    "openai-agents-python#1895": "a stopped turn and its usage are kept, and stopping often costs no connection",
    "langgraph#5672": "what was streamed is kept",
    "vercel/ai#6699": "the partial message is in the conversation",
    "vercel/ai#7900": "the partial message can be read back after the stop",
    "agno#5816": "a stopped run is part of the next request",
    "gemini-cli#11309": "output that was shown is not discarded",
    "openai-agents#lost-tool-results": "a tool that finished keeps its result, whenever the stop came",
    # The stop is late, lost or ignored
    "strands#3992": "the stop reaches the model, whatever it is waiting for",
    "strands#4250": "a back-off is cut",
    "autogen#7956": "a callback may ask the token anything, and nothing deadlocks",
    "claude-agent-sdk-typescript#425": "a stop in the middle of a call always comes to an end",
    "claude-agent-sdk-typescript#429": "a stop before the start is a stop",
    "openai-agents-python#2222": "leaving the loop stops the run",
    "openai-agents-python#574": "a stream that is left makes no further model call",
    "claude-code#41461": "nothing says that it is over before it is",
    "langgraph#lost-abort": "a stop from another thread is never lost",
    "agno#chunks-after-stop": "after the stop no further chunk is sent",
    # Tools run on
    "pydantic-ai#3960": "a tool that outlives the run is named",
    "pydantic-ai#7692": "a thread is left behind only when it did not stop, and then it says so",
    "PraisonAI#4300": "no tool starts after the stop",
    "gemini-cli#28091": "no side effect after Ctrl-C",
    "odysseus#2338": "no grandchild outlives a killed tool",
    "GenericAgent#797": "a tool's processes end with the stop",
    "codex#7985": "no grandchild outlives a stopped command",
    "codex#25772": "a command that ignores TERM is killed",
    "codex#21994": "a command that forks twice leaves nothing running",
    "cursor-forum#162261": "never started and half done are told apart",
    # Stale, racing, repeated stops
    "strands#2156": "a stop of a finished run does not reach the next one",
    "strands#4107": "a stop in the last pass is either obeyed or too late, never wiped",
    "agno#7929": "a stop works in a continued conversation too",
    "claude-code#20648": "no leftover messages after a stop",
    "strands#3615": "an approved tool does not run twice after a stop",
    "strands#approval-bricks": "a stop while an approval is pending leaves an agent that takes the next prompt",
    "claude-agent-acp#402": "one rejected approval leaves the other tools alone",
    "claude-code#93659": "a stop swallows no queued prompt",
    "claude-code#20860": "one stop of the agent takes the whole queue, and sends nothing of it",
    # Handles, accounting, time
    "openai-agents-python#1512": "a run can be stopped from outside by its handle",
    "openai-agents-python#1425": "one timeout covers the whole run",
    "openai-agents-js#995": "usage after a stop is never zero for unknown",
    "pydantic-ai#cumulative-usage": "cumulative figures are not summed",
    "strands#3224": "where hanging up does not stop the bill, the bill is still known",
    "litellm#34147": "a provider that bills the whole answer is read to its end for the receipt",
    "litellm#37185": "a vocabulary that counts wrong is corrected by what is reported",
    "get-convex/agent#293": "usage is not missing after a stop",
    "eve#952": "usage is not zero after a stop",
    "Reasonix#7184": "what a stopped turn used is on the bill",
    "strands#4013": "every span ends, also when the run is stopped",
    # Behind a server, at a terminal
    "openai-agents-js#1241": "no conversation lives at the provider: every request carries all of it, settled",
    "open-webui#1166": "the provider's connection is closed by the stop",
    "open-webui#456": "the model's own server goes idle after the stop",
    "open-webui#16251": "the model's own server goes idle after the stop, whoever asked for it",
    "langgraphjs#2755": "what the server calls cancelled runs no further",
    "claude-code#16905": "the hint says what Esc will do, and Esc does it",
    "claude-code#6643": "Esc never loses the draft",
    "adk-python#4796": "a run is stopped from outside by its id",
    "adk-python#2425": "there is a cancel endpoint",
    "adk-python#323": "a stop from outside leaves the other runs alone",
    "crewAI#3445": "a run is stopped from another process",
    "agno#3106": "a run is stopped from another process, which gets the receipt",
    "vercel/ai#6502": "a stream that can be resumed can be stopped",
    "vercel/ai#18458": "whoever resumes after the stop is told of it",
    "sse-starlette#173": "a client whose network is gone is noticed",
    # Trees of agents
    "strands#3798": "a stopped child is the parent's tool result, and says so",
    "langgraph#8029": "a stop of the parent closes the connections of its children",
    "langgraph#8302": "a stop of the parent stops the child",
    "claude-code#76807": "an agent in the background is not killed silently: its receipt says by whom",
    "claude-code#71294": "an agent in the background that goes on is seen: it is among the active runs",
    "claude-code#78151": "a stop stops what belongs to the run, and nothing else",
    "claude-code#26117": "no child survives unseen: what still runs is on the parent's receipt",
}

LATER: Final = {
    "dify#39942": "runs on many machines",
    "deepagents#4234": "runs on many machines",
    "a2a-sdk#replica-cancel": "runs on many machines",
    "claude-agent-acp#844": "usage over the protocol front ends",
}
