"""The project's own words, and where the code uses each: every one of them is in the glossary of docs/architecture.md.

A word that a reader of the code cannot guess belongs in here, and a word that the code no longer uses does not.
"""

from __future__ import annotations

from typing import Final

# For each word what a search for it finds (a regular expression), and the file or the folder in which.
VOCABULARY: Final[dict[str, tuple[str, str]]] = {
    "agent": ("class Agent\\b", "agent.py"),
    "run": ("class Run\\b", "run/handle.py"),
    "task": ("class Task\\b", "task.py"),
    "own conversation": ("class OwnConversation\\b", "run/own_conversation.py"),
    "claim": ("class Claim\\b", "run/state.py"),
    "turn": ("class TurnInProgress\\b", "run/turn.py"),
    "phase": ("class Phase\\b", "phases.py"),
    "token": ("class CancellationToken\\b", "cancellation/token.py"),
    "work token": ("work_token\\b", "run/progress.py"),
    "cause": ("class Cause\\b", "cancellation/cause.py"),
    "mode": ("class Mode\\b", "cancellation/cause.py"),
    "armed": ("self\\.armed\\b", "run/own_conversation.py"),
    "outcome": ("class Outcome\\b", "messages.py"),
    "grace": ("\\bgrace: float", "tools/policy.py"),
    "abandoned": ("self\\.times\\.abandoned\\b", "tools/call.py"),
    "late outcome": ("[Ll]ate outcome", "tools/"),
    "shield": ("class BoundedShield\\b", "cancellation/shield.py"),
    "settle": ("async def settle\\b", "run/settle.py"),
    "at rest": ("\\bat_rest\\b", "run/progress.py"),
    "seal": ("def seal_turn\\b", "conversation/sealing.py"),
    "middleware": ("class Middleware\\b", "middleware/base.py"),
    "guardrail": ("class InputGuardrail\\b", "middleware/guardrails.py"),
    "receipt": ("class Receipt\\b", "receipt.py"),
    "ledger": ("class Ledger\\b", "usage/ledger.py"),
    "drain": ("class DrainPool\\b", "billing/drain.py"),
    "calibration": ("class Calibration\\b", "usage/estimate/calibration.py"),
    "journal": ("class Journal\\b", "sessions/journal/journal.py"),
    "lease": ("class HeldLease\\b", "sessions/queue/lease.py"),
    "fleet": ("class Fleet\\b", "fleet/client.py"),
    "worker": ("class Worker\\b", "fleet/worker.py"),
    "supervisor": ("def supervise\\b", "processes/supervisor.py"),
    "fork server": ("def _fork_supervisor\\b", "processes/fork_server.py"),
    "take over": ("[Tt]ak(?:e|en|ing|es) over", "fleet/"),
    "freeze": ("class \\w*Freeze\\w*", "fleet/"),
    "cap": ("class Cap\\b", "fleet/"),
    "version": ("\\bversion\\b", "fleet/versions.py"),
    "steer": ("async def steer_aside\\b", "run/steer.py"),
    "handoff": ("def complete_handoff\\b", "run/handoff.py"),
    "effect": ("class Effect\\b", "tools/undo/effect.py"),
    "undo": ("class UndoLog\\b", "tools/undo/log.py"),
    "provider part": ("class ProviderPart\\b", "messages.py"),
    "promise": ("promises P1 to P8", "testing/"),
}
