"""Makes docs/pictures/stop.svg: a real `quiesce chat` in a real terminal, stopped with Esc. `make picture`.

tmux holds the terminal, and its screen is read twelve times a second. The picture is an animated SVG without scripts:
every different line is in it once, and a frame is a list of references to lines. Where nothing moves, the last frame is
shown.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from rich.color import ColorType
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT: Final = Path(__file__).parents[1]
OUT: Final = ROOT / "docs" / "pictures" / "stop.svg"
WIDTH, HEIGHT = 84, 24
COLUMN, ROW, FONT = 8.4, 19, 14
PAUSE: Final = 1 / 12
BACKGROUND, FOREGROUND = "#121212", "#d6d9df"  # the background is that of the chat

Frame = tuple[str, ...]


class Terminal:
    """A tmux server of its own with one pane, in which the chat runs."""

    def __init__(self, store: Path) -> None:
        self._socket: Final = f"picture-{uuid.uuid4().hex[:8]}"
        chat = f"{sys.executable} -m quiesce.cli chat --agent picture_agent:agent --store {store}"
        environment = ["-e", "COLORTERM=truecolor", "-e", f"PYTHONPATH={ROOT / 'tools'}", "-e", "LC_ALL=C.UTF-8"]
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, *environment, chat)

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-L", self._socket, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout  # noqa: S603

    def screen(self) -> Frame:
        """The lines of the screen, with the escape sequences of their colours."""
        lines = self._tmux("capture-pane", "-e", "-N", "-p").split("\n")
        return tuple(lines[:HEIGHT])

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names for them."""
        self._tmux("send-keys", *keys)

    def close(self) -> None:
        """End the terminal and what runs in it."""
        self._tmux("kill-server")


class Recording:
    """The frames of a session and the seconds for which each was on the screen."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal: Final = terminal
        self.frames: list[Frame] = []
        self.seconds: list[float] = []

    def watch(self, until: Callable[[str], bool] | None = None, seconds: float = 30) -> None:
        """Record for so many seconds, or until the text of the screen is as wanted."""
        begin = time.monotonic()
        while True:
            at = time.monotonic()
            screen = self._terminal.screen()
            time.sleep(max(0.0, at + PAUSE - time.monotonic()))
            self._add(screen, time.monotonic() - at)
            if until is not None and until(_plain(screen)):
                return
            if time.monotonic() - begin > seconds:
                if until is None:
                    return
                raise SystemExit(f"The terminal did not show what the picture needs:\n{_plain(screen)}")

    def type(self, text: str) -> None:
        """Type a text, and record it letter by letter."""
        for letter in text:
            self._terminal.press("Space" if letter == " " else letter)
            self.watch(seconds=0.04)

    def press(self, key: str) -> None:
        """Press one key."""
        self._terminal.press(key)

    def _add(self, frame: Frame, seconds: float) -> None:
        if self.frames and self.frames[-1] == frame:
            self.seconds[-1] += seconds
        else:
            self.frames.append(frame)
            self.seconds.append(seconds)


def _plain(frame: Frame) -> str:
    return "\n".join(Text.from_ansi(line).plain for line in frame)


def record() -> Recording:
    """A prompt, a stop while a tool is at work, the receipt, and the next prompt."""
    with tempfile.TemporaryDirectory() as folder:
        return _record(Terminal(Path(folder) / "sessions.db"))


def _record(terminal: Terminal) -> Recording:
    try:
        recording = Recording(terminal)
        _wait_for(terminal, "Enter sends")
        recording.watch(seconds=0.6)
        recording.type("Bake for the market, please.")
        recording.press("Enter")
        recording.watch(lambda text: "tray 4" in text)
        recording.press("Escape")
        recording.watch(lambda text: "at rest" in text)
        recording.watch(seconds=3.5)
        recording.type("How far did you get?")
        recording.press("Enter")
        recording.watch(lambda text: "start again." in " ".join(text.split()))
        recording.watch(seconds=3.5)
        return recording
    finally:
        terminal.close()


def _wait_for(terminal: Terminal, words: str) -> None:
    deadline = time.monotonic() + 30
    while words not in _plain(terminal.screen()):
        if time.monotonic() > deadline:
            raise SystemExit(f"The chat did not start:\n{_plain(terminal.screen())}")
        time.sleep(0.1)


# --- The SVG --------------------------------------------------------------------------------------------------------


def svg(recording: Recording) -> str:
    """The recording as a strip of frames that moves by one frame at a time."""
    width, height = WIDTH * COLUMN + 24, HEIGHT * ROW + 24
    names: dict[str, str] = {}
    uses: list[str] = []
    for at, frame in enumerate(recording.frames):
        for row, line in enumerate(frame):
            if Text.from_ansi(line).plain.strip() or "48;" in line:
                name = names.setdefault(line, f"l{len(names)}")
                uses.append(f'<use href="#{name}" y="{at * height + row * ROW:g}"/>')
    lines = "".join(f'<g id="{name}">{"".join(_spans(line))}</g>' for line, name in names.items())
    total = sum(recording.seconds)
    passed, steps = 0.0, []
    for at, seconds in enumerate(recording.seconds):
        steps.append(f"{passed / total * 100:.2f}%{{transform:translateY({-at * height:g}px)}}")
        passed += seconds
    last = -(len(recording.frames) - 1) * height
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" \
role="img" aria-label="A chat in a terminal. Esc stops the agent while a tool runs; the receipt of the stop follows, \
and then the next prompt.">
<style>text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;\
fill:{FOREGROUND}}}#strip{{transform:translateY({last:g}px);\
animation:play {total:.1f}s steps(1,end) infinite}}@keyframes play{{{"".join(steps)}}}\
@media (prefers-reduced-motion:reduce){{#strip{{animation:none}}}}</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>
<svg x="12" y="12" width="{width - 24:g}" height="{height - 24:g}"><g id="strip">{"".join(uses)}</g></svg>
</svg>
"""


def _spans(line: str) -> Iterator[str]:
    text = Text.from_ansi(line)
    column = 0
    for segment in text.render(_console()):
        if not segment.text or segment.control:
            continue
        style = segment.style or Style()
        at, cells = column, len(segment.text)
        column += cells
        if style.bgcolor is not None and (fill := _colour(style, "bgcolor")):
            yield f'<rect x="{at * COLUMN:.1f}" width="{cells * COLUMN:.1f}" height="{ROW}" fill="{fill}"/>'
        if not segment.text.strip():
            continue
        fill = _colour(style, "color")
        look = (f' fill="{fill}" style="fill:{fill}"' if fill else "") + (' font-weight="bold"' if style.bold else "")
        look += ' opacity=".6"' if style.dim else ""
        place = f'x="{at * COLUMN:.1f}" y="{FONT}" textLength="{cells * COLUMN:.1f}"'
        yield f"<text {place}{look}>{escape(segment.text)}</text>"


def _colour(style: Style, which: str) -> str | None:
    colour = style.bgcolor if which == "bgcolor" else style.color
    if style.reverse:
        colour = style.color if which == "bgcolor" else style.bgcolor
    if colour is None or colour.type is ColorType.DEFAULT:
        return None
    return colour.get_truecolor(MONOKAI).hex


def _console() -> Console:
    return Console(width=WIDTH, color_system="truecolor", force_terminal=True)


def main() -> None:
    """Record and write the picture."""
    recording = record()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(svg(recording), "utf-8")
    print(f"{OUT.relative_to(ROOT)}: {len(recording.frames)} frames, {OUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
