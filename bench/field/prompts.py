"""What is said in the scenarios: the server knows by the prompt what to do, and the harness what to look for."""

from __future__ import annotations

from typing import Final

STALLED: Final = "Tell a story."  # three chunks, then nothing for STALL seconds, then one chunk every PAUSE seconds
FLOWING: Final = "Tell a long story."  # three chunks, then one every PAUSE seconds
TOOLS: Final = "Use both tools."
LOOK_UP: Final = "Look it up, then tell."  # some words and a call of the quick tool, then an answer
TURNS: Final = "Take turns."  # so many calls of the quick tool, one after the other, then an answer
COUNT: Final = "Count."
NEXT: Final = "And now?"

WORDS: Final = ("The heron ", "waited by the ", "frozen river.")
MORE: Final = " It waited."
STALL: Final = 6.0
PAUSE: Final = 0.02
PIECE: Final = 0.002
MOST: Final = 250  # chunks, after which a story ends by itself

BEFORE_CALL: Final = ("One moment: ", "looking.")
ANSWER: Final = ("Found ", "a number ", "of four ", "digits.")
TURN_COUNT: Final = 8  # below the limit of turns that any of the frameworks has by itself

QUICK_RESULT: Final = "the quick tool says 4711"
SLOW_SECONDS: Final = 3.0
