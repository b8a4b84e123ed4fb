from .client import MCPPrompt as MCPPrompt
from .client import MCPResource as MCPResource
from .client import MCPResourceTemplate as MCPResourceTemplate
from .client import MCPServer as MCPServer
from .client import PromptPart as PromptPart
from .tool import ToolAnnotations as ToolAnnotations
