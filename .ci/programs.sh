# The programs that the tests use beside Python: a browser for the console, tmux for the terminal, bubblewrap for the
# sandbox. Debian's are taken where they are missing. Where they cannot be had, the tests that need them say loudly that they were skipped.

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

is_there() {
  command -v "$1" >/dev/null 2>&1
}

# The packages that are missing, one per line.
missing_packages() {
  local name
  for name in "${CHROMIUM:-chromium}" chromium-browser google-chrome; do
    is_there "$name" && break
    [ "$name" != google-chrome ] || echo chromium
  done
  is_there tmux || echo tmux
  is_there bwrap || echo bubblewrap
}

install_missing() {
  local packages package
  packages=$(missing_packages)
  [ -n "$packages" ] || return 0
  if ! is_there apt-get; then
    echo "NOT INSTALLED, there is no apt-get here: "$packages >&2
    return 0
  fi
  as_root apt-get update -qq || echo "apt-get update failed; trying with what is known" >&2
  for package in $packages; do
    as_root apt-get install -y -qq --no-install-recommends "$package" >/dev/null \
      || echo "NOT INSTALLED: $package. The tests that need it will be skipped." >&2
  done
}
