"""Google ADK once more, with plain functions in its thread pool, so that they do not block the event loop."""

from __future__ import annotations

from google.adk.agents.run_config import RunConfig, StreamingMode, ToolThreadPoolConfig

from ._harness import main
from .google_adk import GoogleADK


class GoogleADKPool(GoogleADK):
    stopped_with = "the abort_signal of run_async(), with tool_thread_pool_config"
    config = RunConfig(streaming_mode=StreamingMode.SSE, tool_thread_pool_config=ToolThreadPoolConfig())


if __name__ == "__main__":
    main(GoogleADKPool)
