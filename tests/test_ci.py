"""The step of `.ci/run` that installs a browser, tmux and bubblewrap, on machines with and without them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.house

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / ".ci" / "programs.sh"
BASH = shutil.which("bash")


def machine(directory: Path, *programs: str, user: str = "0", apt: str | None = "exit 0") -> Path:
    """A directory to use as PATH, with these programs and perhaps apt-get and sudo, which note what they are told."""
    scripts = dict.fromkeys(programs, "exit 0") | {"id": f"echo {user}"}
    note = f'echo "$0 $*" | sed "s|.*/||" >> {directory}/told'
    if apt is not None:
        scripts |= {"apt-get": f"{note}\n{apt}", "sudo": f'{note}\n[ "$1" = -n ] && shift\n"$@"'}
    for name, body in scripts.items():
        path = directory / name
        path.write_text(f"#!{BASH}\n{body}\n")
        path.chmod(0o755)
    for name in ("sed",):
        (directory / name).symlink_to(str(shutil.which(name)))
    return directory


def install(path: Path, **environment: str) -> tuple[list[str], str]:
    """What apt-get and sudo were told, and what was said."""
    assert BASH is not None
    done = subprocess.run(
        [BASH, "-euo", "pipefail", "-c", f". {PROGRAMS}; install_missing; echo went on"],
        env={"PATH": str(path), **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "went on\n"
    told = path / "told"
    return told.read_text().splitlines() if told.exists() else [], done.stderr


INSTALL = "apt-get install -y -qq --no-install-recommends"


def test_nothing_is_installed_where_nothing_is_missing(tmp_path: Path):
    assert install(machine(tmp_path, "chromium", "tmux", "bwrap")) == ([], "")


@pytest.mark.parametrize("browser", ["chromium-browser", "google-chrome"])
def test_another_browser_will_do(tmp_path: Path, browser: str):
    assert install(machine(tmp_path, browser, "tmux", "bwrap")) == ([], "")


def test_a_browser_that_is_named_will_do(tmp_path: Path):
    assert install(machine(tmp_path, "my-browser", "tmux", "bwrap"), CHROMIUM="my-browser") == ([], "")


def test_what_is_missing_is_installed(tmp_path: Path):
    told, said = install(machine(tmp_path))
    assert told == ["apt-get update -qq", f"{INSTALL} chromium", f"{INSTALL} tmux", f"{INSTALL} bubblewrap"]
    assert said == ""


def test_only_what_is_missing_is_installed(tmp_path: Path):
    assert install(machine(tmp_path, "chromium", "bwrap"))[0] == ["apt-get update -qq", f"{INSTALL} tmux"]


def test_others_than_root_ask_sudo_and_are_never_asked_for_a_password(tmp_path: Path):
    told, _ = install(machine(tmp_path, "chromium", "bwrap", user="1000"))
    assert [line for line in told if line.startswith("sudo")] == [
        "sudo -n apt-get update -qq",
        f"sudo -n {INSTALL} tmux",
    ]


def test_what_cannot_be_installed_is_said_and_the_rest_goes_on(tmp_path: Path):
    told, said = install(machine(tmp_path, apt='case "$*" in *chromium*) exit 100;; esac'))
    assert f"{INSTALL} tmux" in told
    assert said == "NOT INSTALLED: chromium. The tests that need it will be skipped.\n"


def test_a_machine_without_apt_says_what_is_missing(tmp_path: Path):
    told, said = install(machine(tmp_path, apt=None))
    assert told == []
    assert said == "NOT INSTALLED, there is no apt-get here: chromium tmux bubblewrap\n"


# --- What is in the repository ----------------------------------------------------------------------------------------


def test_no_caches_are_in_git():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git repository")
    cache = re.compile(
        r"(^|/)(__pycache__|\.\w*_cache|\.hypothesis|\.schemathesis|\.venv[^/]*|[^/]*\.egg-info|dist|build)/|\.pyc$|\.coverage"
    )
    assert [name for name in listed.stdout.splitlines() if cache.search(name)] == []


def test_each_requirement_has_a_version_in_the_constraints():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"]]
    for each in (project["project"]["optional-dependencies"], project["dependency-groups"]):
        asked += [requirement for requirements in each.values() for requirement in requirements]
    pinned = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    names = {re.split(r"[^A-Za-z0-9-]", requirement)[0].lower() for requirement in asked}
    assert names - {"quiesce", "pip"} <= pinned
