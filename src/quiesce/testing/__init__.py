"""A test kit for agents: scripted models, virtual time, injected stops and checks of the promises.

from quiesce.testing import Call, Say, ScriptedModel, stop_everywhere

def make_agent():
    return Agent(ScriptedModel([Say("Looking."), Call("search", {"q": "rain"})], then="Done."), tools=[search])

def test_my_agent_can_be_stopped_anywhere():
    print(stop_everywhere(make_agent, "Will it rain?"))
"""

from ..models.scripted import (
    Call,
    Drop,
    End,
    Fail,
    Interleave,
    Pause,
    Raw,
    Say,
    ScriptedModel,
    Stall,
    Think,
    TornCall,
    Used,
)
from .conformance import check_model
from .injector import Injection, Injector
from .invariants import violations
from .scenario import Harness, WatchedRun
from .stop_everywhere import ALL_SOURCES, StopReport, StopViolation, stop_everywhere
from .tool_log import ToolLog
from .virtual_time import Gate, Stuck, VirtualLoop, run_virtual

__all__ = [
    "ALL_SOURCES",
    "Call",
    "Drop",
    "End",
    "Fail",
    "Gate",
    "Harness",
    "Injection",
    "Injector",
    "Interleave",
    "Pause",
    "Raw",
    "Say",
    "ScriptedModel",
    "Stall",
    "StopReport",
    "StopViolation",
    "Stuck",
    "Think",
    "ToolLog",
    "TornCall",
    "Used",
    "VirtualLoop",
    "WatchedRun",
    "check_model",
    "run_virtual",
    "stop_everywhere",
    "violations",
]
