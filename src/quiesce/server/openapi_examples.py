"""The examples of the OpenAPI document, by schema: a run that was stopped, and what the routes say around it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec

from ..cancellation import Cause, Mode
from ..messages import AssistantMessage, Outcome, Text, ToolCall, ToolMessage, ToolResult, UserMessage
from ..phases import Phase
from ..receipt import CallReceipt, Receipt
from ..usage.figure import reported
from ..usage.ledger import LedgerEntry, TokenUsage, summarise
from ..usage.prices import Cost
from . import schemas
from .event_log import to_json

_RUN: Final = "3f2a9c01d4e7"
_DAY: Final = "2026-11-16"
_AT: Final = 1794735158.5
_COST: Final = Decimal("0.0049")

_CAUSE: Final = Cause("user", "wrong branch", Mode.NOW, _AT + 3, 0.0)
_TOKENS: Final = TokenUsage(reported(1204), reported(87))
_ENTRY: Final = LedgerEntry(f"{_RUN}.1", _RUN, "claude-sonnet-5", 1, 1, "completed", _TOKENS, Cost(_COST, _COST, _COST))
_USAGE: Final = summarise((_ENTRY,))
_USED: Final = schemas.usage_view(_USAGE)
_PROMPT: Final = UserMessage((Text("Make the tests pass"),))
_CALL: Final = ToolCall("call_1", "build", {"target": "all"})
_RESULT: Final = ToolResult(
    "call_1", "build", (Text("The tool was cancelled while it was running."),), outcome=Outcome.CANCELLED, is_error=True
)
_MESSAGES: Final = (
    _PROMPT,
    AssistantMessage((Text("Let me build it first."), _CALL), model="claude-sonnet-5"),
    ToolMessage((_RESULT,)),
)
_RECEIPT: Final = Receipt(
    _RUN, "cancelled", _CAUSE, Mode.NOW, Phase.ACTING, 0.041,
    (CallReceipt("call_1", "build", Outcome.CANCELLED, ok=False, seconds=2.9),), (), _USAGE,
    waited_for=("build",), asked_during=Phase.ACTING,
)  # fmt: skip
_RUNNING: Final = schemas.RunView(
    _RUN, "coder", "refunds", "running", Phase.ACTING, None, _PROMPT.text, _AT, None, None, None, (), (), _USED,
    "Let me build it first.", last_event=14, task=_RUN,
)  # fmt: skip
_STOPPED: Final = msgspec.structs.replace(
    _RUNNING, state="ended", phase=Phase.ENDED, stop_reason="cancelled", ended_at=_AT + 3.1, mode=Mode.NOW,
    cause=_CAUSE, last_event=19,
)  # fmt: skip
_SESSION: Final = schemas.SessionView("refunds", "coder", len(_MESSAGES), _AT + 3.1, None)
_DAYS: Final = (schemas.DayUsage(_DAY, "claude-sonnet-5", _USED, "coder"),)

_ANSWERS: Final = (
    schemas.RunAnswer(_RUNNING),
    schemas.RunList((_STOPPED,)),
    schemas.RunDetail(_STOPPED, _MESSAGES, _RECEIPT),
    schemas.CancelAnswer(accepted=True, run=_STOPPED, receipt=_RECEIPT),
    schemas.ReceiptAnswer(_RECEIPT),
    schemas.SessionList((_SESSION,)),
    schemas.SessionDetail(_SESSION, _MESSAGES, (_STOPPED,)),
    schemas.ApprovalList(
        (
            schemas.StandingApproval(
                "ap_7", "coder", "deploy", None, {"environment": schemas.ArgumentPattern(equals="staging")}, "ci", _AT,
                _AT + 3600, "9c41f0",
            ),
        )
    ),
    schemas.AuditPage(
        (schemas.AuditEntry(7, _AT + 3, "ci", "stop", _RUN, "refunds", "coder", "now: wrong branch"),), None
    ),
    schemas.UsageReport(_USED, _DAYS, (schemas.SessionUsage("refunds", "coder", 1, _AT, _USED),)),
    schemas.UsageByKey(_USED, (schemas.KeyUsage("ci", _DAY, _USED),), _DAYS),
    schemas.AgentList(
        (schemas.AgentView("coder", "claude-sonnet-5", (schemas.ToolView("build", "Build a target.", "kill", 2.0),)),)
    ),
    schemas.FleetView(
        (schemas.WorkerView("worker-1", "up", ("coder",), 3, 8, _AT - 600, 0.4),),
        (schemas.QueueView("coder", 2, 3),),
        (
            schemas.CapView(
                "coder", shared=False, allowed=schemas.CapFigures(10, None, Decimal(20)),
                used=schemas.CapFigures(3, None, Decimal("4.20")), resets_in=3600.0,
            ),
        ),
        (),
    ),
)  # fmt: skip

EXAMPLES: Final[dict[str, Any]] = {
    "StartRun": {"prompt": "Refund order 12.", "session": "refunds", "timeout": 120},
    "CancelRun": {"reason": "wrong branch", "mode": "now"},
    "CancelTool": {"reason": "takes too long"},
    "SteerRun": {"text": "Only the docs, please."},
    "PauseRun": {"paused": True},
    "ResumeRun": {"answers": [{"id": "int_1", "answer": {"type": "approve"}}]},
    "Nothing": {},
    "Accepted": {"accepted": True, "delivered": True},
    "Health": {"status": "ok", "runs": 3, "version": "0.1.0"},
    "Error": {"error": {"code": "not_found", "message": "There is no run r1.", "todo": "`GET /runs` lists them."}},
    **{type(answer).__name__: msgspec.json.decode(to_json(answer)) for answer in _ANSWERS},
}
"""Of request bodies and of answers. Each is valid for its schema."""

STREAMS: Final = {
    "Event": 'id: 6\nevent: text\nat: 1794735158.521\ndata: {"type":"text","text":"Once upon"}\n\n',
    "RunsChange": f'id: 5f0c21aa.12\nevent: gone\ndata: {{"type":"gone","id":"{_RUN}"}}\n\n',
}
"""A piece of each stream of server-sent events, by the schema of its data."""
