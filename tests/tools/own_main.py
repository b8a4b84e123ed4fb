"""A script whose killable tools use its own classes, as scripts and notebooks do. Prints the results of the calls."""

import dataclasses
import enum

from pydantic import BaseModel

from quiesce import Agent, ToolContext, tool
from quiesce.models.scripted import Call, ScriptedModel

print("run as", __name__)


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    street: str


class Named:
    def title(self) -> str:
        return type(self).__name__


@dataclasses.dataclass
class Order(Named):
    count: int
    size: Size = Size.SMALL

    def title(self) -> str:
        return f"{super().title()} of {twice(self.count)}"


class Refused(Exception):
    pass


def twice(number: int) -> int:
    return 2 * number


@tool
def label(size: Size) -> str:
    return size.name


@tool(on_stop="kill")
def place(order: Order, address: Address, sizes: list[Size]) -> str:
    assert isinstance(order, Order)
    assert order.size is Size.SMALL
    return f"{order.title()} to {address.street}, {label(sizes[0])}"


@tool(on_stop="kill")
def refuse(ctx: ToolContext) -> str:
    raise Refused(Order(1).title())


class Counter:
    def __init__(self) -> None:
        self.value = 3

    def read(self) -> int:
        return self.value


# A cell of a notebook: compiled by itself, in the same namespace.
exec("@tool(on_stop='kill')\ndef cell() -> str:\n    return Order(5).title()\n")

calls = [
    Call("place", {"order": {"count": 2}, "address": {"street": "High Street"}, "sizes": ["large"]}),
    Call("refuse"),
    Call("read"),
    Call("cell"),
]
tools = [place, refuse, tool(on_stop="kill")(Counter().read), cell]  # noqa: F821  # pyright: ignore
for message in Agent(ScriptedModel(calls, then="done"), tools=tools)("go").messages:
    for result in getattr(message, "results", ()):
        print(result.text)
