# Shared by tools/quickstart and tools/check: brings a machine to the point where h3diff is built. Sourced, not run.
# Each step says what it does, does nothing when it has been done, and takes seconds then.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=$root/.venv
python=$venv/bin/python
jobs=$(nproc)

say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 5
}

# watch LABEL LOG COMMAND...: runs COMMAND with its output in LOG; says every 20 s how far it is; on failure shows the
# log's end and returns the command's status.
watch() {
  local label=$1 log=$2 status=0 waited=0
  shift 2
  "$@" >"$log" 2>&1 &
  local job=$!
  while kill -0 "$job" 2>/dev/null; do
    sleep 1
    waited=$((waited + 1))
    if ((waited % 20 == 0)); then
      say "$label: $(tail -c 4000 "$log" | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c1-110)"
    fi
  done
  wait "$job" || status=$?
  if ((status != 0)); then
    tail -n 60 "$log" >&2
    say "$label failed with $status; the whole log is $log"
  fi
  return "$status"
}

# install_packages PACKAGE...: Debian or Ubuntu packages that are missing.
install_packages() {
  local missing=() package
  if ! command -v apt-get >/dev/null; then
    say "no apt-get here: taking these for installed: $*"
    return
  fi
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  ((${#missing[@]} == 0)) && return
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "these packages are missing and only root can install them: ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  local log
  log=$(mktemp)
  watch "package list" "$log" "${as_root[@]}" apt-get update || die "apt-get update failed"
  watch "packages" "$log" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}" || die "apt-get install failed"
  rm -f "$log"
}

# Files that tools/format formats and tools/check holds to it.
sources() { git ls-files -- probes cases harness goldens tools tests | grep -E '\.(cpp|hpp|inc|h)$'; }

has_venv() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

# Sets $base_python to the first Python 3.11 to 3.13 that can make a virtual environment.
find_python() {
  local candidate
  for candidate in python3 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null && has_venv "$candidate"; then
      base_python=$(command -v "$candidate")
      return 0
    fi
  done
  return 1
}

# Every argument is one more package to have.
setup_system() {
  install_packages cmake ninja-build g++ ccache mold libhdf5-dev hdf5-tools nlohmann-json3-dev libcli11-dev libfmt-dev \
    libeigen3-dev libssl-dev libgtest-dev "$@"
  if ! find_python; then
    install_packages python3 python3-venv
    find_python || die "no Python 3.11 to 3.13 with venv on this machine; install python3.12 and python3.12-venv"
  fi
  local have
  have=$(cmake --version | sed -n '1s/.*version //p')
  [ "$(printf '3.25\n%s\n' "$have" | sort -V | head -n 1)" = 3.25 ] || die "cmake is $have; 3.25 or newer is needed"
}

setup_python() {
  local stamp=$venv/requirements.stamp wanted
  wanted="$(sha256sum requirements.txt | cut -d' ' -f1) $venv $("$base_python" --version)"
  if [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    return
  fi
  say "making .venv with $(grep -c '==' requirements.txt) pinned packages (torch alone is over 2 GB with what it needs)"
  local log
  log=$(mktemp)
  "$base_python" -m venv --clear "$venv" || die "$base_python cannot make a virtual environment"
  watch ".venv" "$log" "$python" -m pip install --disable-pip-version-check --progress-bar off -r requirements.txt ||
    die "pip could not install requirements.txt"
  rm -f "$log"
  printf '%s\n' "$wanted" >"$stamp"
}

# build_preset NAME [TARGET...]
build_preset() {
  local preset=$1 dir=$root/build/$1 log
  shift
  mkdir -p "$dir"
  log=$dir/build.log
  if [ ! -f "$dir/build.ninja" ]; then
    say "configuring $preset"
    watch "configure $preset" "$dir/configure.log" cmake --preset "$preset" "-DPython3_EXECUTABLE=$base_python" ||
      die "cmake --preset $preset failed"
  fi
  if cmake --build "$dir" -- -n "$@" 2>/dev/null | grep -q 'no work to do'; then
    say "$preset is up to date"
    return
  fi
  say "building $preset"
  watch "build $preset" "$log" env NINJA_STATUS='[%f/%t] ' cmake --build "$dir" -- -j "$jobs" "$@" || return 1
  say "built $preset"
}
