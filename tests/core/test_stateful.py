"""Start, chunk, tool, stop, escalate, continue: in any order that hypothesis can think of."""

import asyncio

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quiesce import Agent, tool
from quiesce.conversation.validity import faults
from quiesce.events import AnswerEnd, ReasoningDelta, RunEnded, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart
from quiesce.messages import AssistantMessage, UserMessage
from quiesce.phases import Phase
from quiesce.run.handle import state_of
from tests.core.kit import Ended, HandModel, Record, check_end, passes, results

MODES = st.sampled_from(["after_turn", "after_tools", "now", "kill"])


class Conversations(RuleBasedStateMachine):
    """One agent, a model that says what the rules let it say, and a tool that ends when they let it."""

    @initialize(sequential=st.booleans())
    def begin(self, sequential):
        self.runner = asyncio.Runner()
        self.runner.get_loop()
        self.runs = 0
        self.prompts: list[str] = []
        self.streamed = ""
        self.finished_tools: list[str] = []
        self.record: Record | None = None
        self.run = None
        self.gates: list[asyncio.Future] = []
        self.calls = 0
        self.do(self._make(sequential))

    async def _make(self, sequential):
        self.model = HandModel()

        @tool
        async def work() -> str:
            gate = asyncio.get_running_loop().create_future()
            self.gates.append(gate)
            return await gate

        self.agent = Agent(self.model, tools=[work], tool_execution="sequential" if sequential else "parallel")

    def do(self, work):
        async def main():
            result = await work
            await passes(12)
            return result

        return self.runner.run(main())

    @property
    def active(self) -> bool:
        return self.run is not None and not self.run.done

    @property
    def answering(self) -> bool:
        return self.active and self.run.phase in (Phase.CALLING, Phase.STREAMING) and bool(self.model.open_streams)

    # --- Rules --------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.active)
    @rule()
    def start_or_continue(self):
        async def start():
            self.runs += 1
            self.prompts.append(f"prompt {self.runs}")
            while not self.model.deltas.empty():
                self.model.deltas.get_nowait()
            self.run = self.agent.start(self.prompts[-1])
            self.record = Record(self.run)

        self.streamed = ""
        self.do(start())

    def give(self, *deltas):
        async def work():
            self.model.give(*deltas)

        self.do(work())

    @precondition(lambda self: self.answering)
    @rule(text=st.text("abc ", min_size=1, max_size=4))
    def chunk(self, text):
        self.give(TextDelta(text))

    @precondition(lambda self: self.answering)
    @rule()
    def think(self):
        self.give(ReasoningDelta("hm"))

    @precondition(lambda self: self.answering)
    @rule(torn=st.booleans())
    def call(self, torn):
        self.calls += 1
        name = f"c{self.calls}"
        deltas = [ToolCallStart(name, "work"), ToolCallArguments(name, "{")]
        self.give(*deltas, *([] if torn else [ToolCallArguments(name, "}"), ToolCallEnd(name)]))

    @precondition(lambda self: self.answering)
    @rule()
    def end_answer(self):
        self.give(AnswerEnd("end_turn"), None)

    @precondition(lambda self: self.answering)
    @rule()
    def hang_up(self):
        self.give(None)

    @precondition(lambda self: any(not gate.done() for gate in self.gates))
    @rule(fails=st.booleans())
    def end_tool(self, fails):
        async def work():
            gate = next(gate for gate in self.gates if not gate.done())
            value = f"result {len(self.finished_tools)}"
            self.finished_tools.append(value)
            if fails:
                gate.set_exception(ValueError(value))
            else:
                gate.set_result(value)

        self.do(work())

    @precondition(lambda self: self.active)
    @rule(mode=MODES)
    def stop_or_escalate(self, mode):
        async def work():
            self.run.cancel("stop", mode=mode)

        self.do(work())

    @precondition(lambda self: self.run is not None and self.run.done)
    @rule(mode=MODES)
    def stop_too_late(self, mode):
        before = self.agent.messages
        assert self.run.cancel(mode=mode) is False
        assert self.agent.messages == before

    # --- What holds after each --------------------------------------------------------------------------------

    @invariant()
    def valid_at_every_moment(self):
        if self.record is None:
            return
        assert self.record.faults == []
        assert faults(self.run.messages) == ()
        prompt = () if self.active else (UserMessage(state_of(self.run).claim.prompt.content),)
        assert faults(self.agent.messages + prompt) == ()

    @invariant()
    def nothing_is_lost(self):
        if self.record is None:
            return
        said = "".join(event.text for event in self.record.of(TextDelta)).strip()
        new = self.run.messages[state_of(self.run).claim.first_message :]
        kept = "".join(message.text for message in new if isinstance(message, AssistantMessage))
        assert said.replace(" ", "") == kept.replace(" ", "")
        told = " ".join(result.text for result in results(self.run.messages))
        assert all(value in told for value in self.finished_tools)
        prompts = [message.text for message in self.run.messages if isinstance(message, UserMessage)]
        assert prompts == self.prompts

    @invariant()
    def one_end(self):
        if self.record is None:
            return
        ends = len(self.record.of(RunEnded))
        assert ends == int(self.run.phase is Phase.ENDED)
        if self.run.done:
            check_end(Ended(self.run.inspect().result, self.record), self.agent)
            assert self.model.open_streams == 0

    def teardown(self):
        if not hasattr(self, "runner"):
            return

        async def finish():
            if self.active:
                self.run.cancel(mode="kill")
                await self.run.stopped()

        self.do(finish())
        self.valid_at_every_moment()
        self.one_end()
        self.runner.close()


Conversations.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestConversations = pytest.mark.promise("P2", "P3")(Conversations.TestCase)
