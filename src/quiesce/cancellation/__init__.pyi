from .cause import Cause as Cause
from .cause import Mode as Mode
from .cause import Source as Source
from .scope import StopScope as StopScope
from .shield import BoundedShield as BoundedShield
from .signals import stop_on_signals as stop_on_signals
from .token import CancellationToken as CancellationToken
from .view import TokenView as TokenView
