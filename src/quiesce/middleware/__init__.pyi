from .base import Middleware as Middleware
from .base import ModelCall as ModelCall
from .base import Send as Send
from .base import ToolCallRequest as ToolCallRequest
from .base import text_answer as text_answer
from .fallback import FallbackModels as FallbackModels
from .guardrails import InputGuardrail as InputGuardrail
from .guardrails import OutputGuardrail as OutputGuardrail
