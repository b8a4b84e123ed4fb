"""The call that a person approves is the call that is made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any
from uuid import UUID, uuid4

import msgspec
import pytest
from pydantic import AfterValidator, BaseModel, Field, SecretStr

from quiesce import Agent, Conversation, ConversationState, RunContext, Tool, tool
from quiesce.middleware import Middleware
from quiesce.testing import Call, ScriptedModel

from .kit import main
from .shop import results

pytestmark = pytest.mark.promise("P4")


class Item(BaseModel):
    id: UUID = Field(default_factory=uuid4)
    count: int = 1


def asking(*tools: Any, arguments: dict[str, Any], then: str = "Done.", **options: Any) -> Agent:
    return Agent(ScriptedModel([Call(tools[0].name, arguments)], then=then), tools=list(tools), **options)


def stored_and_restored(agent: Agent) -> Conversation:
    stored = msgspec.json.encode(agent.conversation.snapshot())
    return Conversation.restore(msgspec.json.decode(stored, type=ConversationState))


@main
async def test_the_person_sees_coerced_values_and_defaults_and_these_are_used() -> None:
    ran: list[tuple[Any, ...]] = []

    @tool(requires_approval=True)
    async def remove(path: str, n: int, force: bool = True, names: tuple[str, ...] = ("a",)) -> str:
        ran.append((path, n, force, names))
        return "removed"

    agent = asking(remove, arguments={"path": "/tmp/x", "n": "7"})
    (asked,) = (await agent.invoke_async("Go")).interrupts
    assert asked.arguments == {"path": "/tmp/x", "n": 7, "force": True, "names": ["a"]}
    await agent.answer_async({asked.id: True})
    assert ran == [("/tmp/x", 7, True, ("a",))]


@main
async def test_a_value_that_validation_makes_up_is_made_up_once() -> None:
    ran: list[UUID] = []

    @tool(requires_approval=True)
    async def order(item: Item) -> str:
        ran.append(item.id)
        return "ordered"

    agent = asking(order, arguments={"item": {"count": "2"}})
    (asked,) = (await agent.invoke_async("Go")).interrupts
    assert asked.arguments["item"]["count"] == 2
    await agent.answer_async({asked.id: True})
    assert [str(each) for each in ran] == [asked.arguments["item"]["id"]]


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (SecretStr, "abc", SecretStr("abc")),
        (Annotated[int, AfterValidator(lambda value: value + 1)], 7, 8),
        (float, "Infinity", float("inf")),
    ],
)
def test_types_that_do_not_survive_json_are_called_as_the_model_gave_them(kind: Any, given: Any, expected: Any) -> None:
    ran: list[Any] = []

    async def use(value: Any, odd: int = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
        ran.append((value, odd))
        return "used"

    use.__annotations__["value"] = kind
    first = asking(Tool(use, requires_approval=True), arguments={"value": given})
    (asked,) = first("Go").interrupts
    assert asked.arguments["odd"] is None, "a default is shown, even one that its own type does not allow"
    conversation = stored_and_restored(first)
    second = Agent(ScriptedModel(then="Back."), tools=[Tool(use, requires_approval=True)], conversation=conversation)
    second.answer({asked.id: True})
    assert ran == [(expected, None)]


@main
async def test_a_default_that_json_would_change_is_left_to_the_function() -> None:
    ran: list[str] = []

    @tool(requires_approval=True)
    async def sign_in(user: str, password: SecretStr = SecretStr("swordfish")) -> str:
        ran.append(f"{user} {password.get_secret_value()}")
        return "in"

    agent = asking(sign_in, arguments={"user": "ada"})
    (asked,) = (await agent.invoke_async("Go")).interrupts
    assert asked.arguments == {"user": "ada", "password": "**********"}
    await agent.answer_async({asked.id: True})
    assert ran == ["ada swordfish"]


@pytest.mark.parametrize("needed", [True, False])
def test_a_predicate_that_changes_its_arguments_changes_nothing(needed: bool) -> None:
    ran: list[list[str]] = []

    def check(arguments: dict[str, Any]) -> bool:
        arguments["names"].append("evil")
        arguments["count"] = 100
        return needed

    @tool(requires_approval=check)
    async def remove(names: list[str], count: int = 1) -> str:
        ran.append([*names, str(count)])
        return "removed"

    agent = asking(remove, arguments={"names": ["good"]})
    for each in agent("Go").interrupts:
        assert each.arguments == {"names": ["good"], "count": 1}
        agent.answer({each.id: True})
    assert ran == [["good", "1"]]


@main
async def test_changing_what_was_shown_changes_nothing() -> None:
    ran: list[list[str]] = []

    @tool(requires_approval=True)
    async def remove(names: list[str]) -> str:
        ran.append(names)
        return "removed"

    agent = asking(remove, arguments={"names": ["good"]})
    (asked,) = (await agent.invoke_async("Go")).interrupts
    asked.arguments["names"].append("evil")
    await agent.answer_async({asked.id: True})
    assert ran == [["good"]]


@main
async def test_middleware_that_changes_its_mind_does_not_change_what_was_approved() -> None:
    ran: list[int] = []
    amounts = [1, 2]

    class Changing(Middleware):
        async def tool_call(self, call: Any, next: Any, /) -> Any:
            return await next(call.replace(arguments={"amount": amounts.pop(0)}))

    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    agent = asking(pay, arguments={"amount": 7}, middleware=[Changing()])
    (asked,) = (await agent.invoke_async("Go")).interrupts
    assert asked.arguments == {"amount": 1}
    await agent.answer_async({asked.id: True})
    assert ran == [1]


# --- Another definition of the tool ----------------------------------------------------------------------------------


def remover(ran: list[str], *, description: str = "Remove a file.", approval: bool = True) -> Tool:
    async def remove(path: str) -> str:
        ran.append(path)
        return "removed"

    return Tool(remove, description=description, requires_approval=approval)


def forcing(ran: list[str]) -> Tool:
    async def remove(path: str, force: bool = True) -> str:
        ran.append(f"{path} force={force}")
        return "removed"

    return Tool(remove, description="Remove a file.", requires_approval=True)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (lambda ran: remover(ran, description="Remove a whole tree."), "x"),
        (lambda ran: remover(ran, description="Remove a whole tree.", approval=False), "x"),
        (forcing, "x force=True"),
    ],
)
def test_a_tool_that_has_changed_asks_again(changed: Callable[[list[str]], Tool], expected: str) -> None:
    ran: list[str] = []
    first = asking(remover(ran), arguments={"path": "x"})
    (asked,) = first("Go").interrupts
    second = Agent(ScriptedModel(then="Back."), tools=[changed(ran)], conversation=stored_and_restored(first))
    result = second.answer({asked.id: True})
    assert (result.stop_reason, ran) == ("interrupt", [])
    (again,) = result.interrupts
    assert again.id == asked.id
    assert "The tool has changed since this call was approved" in again.reason
    third = Agent(ScriptedModel(then="Back."), tools=[changed(ran)], conversation=stored_and_restored(second))
    assert third.answer({again.id: True}).stop_reason == "end_turn"
    assert ran == [expected]


def test_the_same_definition_made_anew_keeps_its_approval() -> None:
    ran: list[str] = []
    first = asking(remover(ran), arguments={"path": "x"})
    (asked,) = first("Go").interrupts
    second = Agent(ScriptedModel(then="Back."), tools=[remover(ran)], conversation=stored_and_restored(first))
    assert results(second.answer({asked.id: True}))[asked.call_id].text == "removed"
    assert ran == ["x"]


@pytest.mark.promise("P9")
def test_an_approval_that_was_stored_without_a_fingerprint_is_still_read() -> None:
    ran: list[str] = []
    first = asking(remover(ran), arguments={"path": "x"})
    first("Go")
    stored: Any = msgspec.to_builtins(first.conversation.snapshot())
    for call in stored["pending"]["calls"]:
        del call["frozen"], call["fingerprint"]
        for each in call["interrupts"]:
            del each["preview"]
    conversation = Conversation.restore(msgspec.convert(stored, ConversationState))
    second = Agent(ScriptedModel(then="Back."), tools=[remover(ran)], conversation=conversation)
    assert second.answer({"call_1:approval": True}).text == "Back."
    assert ran == ["x"]


# --- The predicate and the preview -----------------------------------------------------------------------------------


@main
async def test_the_predicate_sees_the_context_of_the_run() -> None:
    ran: list[int] = []

    async def unless_trusted(ctx: RunContext[Any], arguments: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        ctx.state["asked about"] = arguments["amount"]
        return ctx.deps != "trusted"

    @tool(requires_approval=unless_trusted)
    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    agent = asking(pay, arguments={"amount": 7})
    assert (await agent.invoke_async("Go", deps="guest")).stop_reason == "interrupt"
    assert agent.conversation.state == {"asked about": 7}
    agent = asking(pay, arguments={"amount": 7})
    assert (await agent.invoke_async("Go", deps="trusted")).stop_reason == "end_turn"
    assert ran == [7]


def approval(preview: str | None, reason: Any) -> Any:
    from quiesce import Approval

    return Approval(preview=preview, reason=reason)


@pytest.mark.parametrize(
    ("answer", "preview", "reason"),
    [
        (lambda: True, "of the tool: 7", None),
        (lambda: "-old\n+new", "-old\n+new", None),
        (lambda: approval("-old\n+new", {"risk": "high"}), "-old\n+new", {"risk": "high"}),
        (lambda: approval(None, "much"), "of the tool: 7", "much"),
        (lambda: "a name \udcff", "a name \N{REPLACEMENT CHARACTER}", None),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_the_predicate_answers_with_a_preview(
    answer: Callable[[], Any], preview: str, reason: Any, is_async: bool
) -> None:
    async def asynchronous(_: dict[str, Any]) -> Any:
        return answer()

    async def pay(amount: int) -> str:
        return f"paid {amount}"

    predicate = asynchronous if is_async else lambda _: answer()
    paying = Tool(pay, requires_approval=predicate, preview=lambda arguments: f"of the tool: {arguments['amount']}")
    first = asking(paying, arguments={"amount": "7"})
    (asked,) = first("Go").interrupts
    assert (asked.preview, asked.reason) == (preview, reason)
    assert stored_and_restored(first).interrupts == (asked,), "the preview is stored with the question"


@pytest.mark.parametrize("error", [ValueError("no idea"), asyncio.CancelledError("no idea")])
def test_a_predicate_or_preview_that_fails_asks_all_the_same(error: BaseException) -> None:
    def fails(_: dict[str, Any]) -> bool:
        raise error

    async def pay(amount: int) -> str:
        return f"paid {amount}"

    (asked,) = asking(Tool(pay, requires_approval=fails), arguments={"amount": 7})("Go").interrupts
    assert "Whether an approval is needed is not known" in asked.reason

    def no_preview(_: dict[str, Any]) -> str:
        raise FileNotFoundError("x.py")

    paying = Tool(pay, requires_approval=True, preview=no_preview)
    (asked,) = asking(paying, arguments={"amount": 7})("Go").interrupts
    assert asked.preview == "There is no preview: FileNotFoundError: x.py"
