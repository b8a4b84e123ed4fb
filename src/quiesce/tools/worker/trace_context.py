"""The trace that a call belongs to, in its worker process: spans that the function begins are below the tool's."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Final

_TRACEPARENT: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def make_trace_current(env: Mapping[bytes, bytes]) -> None:
    """Make the span of TRACEPARENT the current one, as the host's; without one, none is current."""
    found = _TRACEPARENT.fullmatch(env.get(b"TRACEPARENT", b""))
    if found is None and "opentelemetry.context" not in sys.modules:
        return
    try:
        from opentelemetry import context, trace
    except ImportError:  # another program's variable, and no OpenTelemetry here
        return
    api: Any = trace
    span: Any = api.INVALID_SPAN
    if found is not None:
        trace_id, span_id, flags = (int(part, 16) for part in found.groups())
        known = api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=api.TraceFlags(flags))
        span = api.NonRecordingSpan(known)
    context.attach(api.set_span_in_context(span))
