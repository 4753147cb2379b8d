#!/usr/bin/env bash
# Loads a gateway with wrk and oha, with each of the two that is installed. docs/load-testing.md explains the figures.
#
#   benches/load.sh                     the shipped gateway.toml: this script builds, starts and ends the gateway
#   benches/load.sh http://HOST/PATH    one that runs already
#
# From the environment:
#   SECONDS_EACH=5  CONNECTIONS=64
#   THREADS=1                     threads of wrk; oha has one for each processor
#   TOLLGATE=/path/to/tollgate    starts this one instead of building it
set -euo pipefail

seconds=${SECONDS_EACH:-5}
connections=${CONNECTIONS:-64}
threads=${THREADS:-1}
url=${1:-}
gateway=

fail() {
  echo "load.sh: $*" >&2
  exit 1
}

work=$(mktemp -d)
finish() {
  if [ -n "$gateway" ]; then
    kill "$gateway" 2>/dev/null || true
    wait "$gateway" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# Sets `tools`.
find_tools() {
  local name install
  tools=()
  for name in wrk oha; do
    if command -v "$name" >/dev/null; then
      tools+=("$name")
      continue
    fi
    install='cargo install --locked oha'
    if [ "$name" = wrk ]; then install='apt-get install wrk'; fi
    echo "load.sh: $name is missing, so it is left out; to install it: $install" >&2
  done
  ((${#tools[@]})) || fail "neither wrk nor oha is installed"
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Sets `free`: a port without a listener, below the range for outgoing connections.
find_free_port() {
  for _ in $(seq 100); do
    free=$((12000 + RANDOM % 18000))
    listening "$free" || return 0
  done
  fail "no free port"
}

# Starts the gateway with gateway.toml on free ports, and sets `gateway` and `port`. Its access log goes to /dev/null: a
# terminal would be slower than the gateway.
start_gateway() {
  local admin
  cd "$(dirname "$0")/.."
  if [ -z "${TOLLGATE:-}" ]; then
    echo "building with optimisation: cargo build --release --locked" >&2
    cargo build --release --locked --quiet
    TOLLGATE=${CARGO_TARGET_DIR:-target}/release/tollgate
  fi
  find_free_port
  port=$free
  until find_free_port; [ "$free" != "$port" ]; do :; done
  admin=$free
  sed -e "s/127.0.0.1:8080/127.0.0.1:$port/" -e "s/127.0.0.1:9900/127.0.0.1:$admin/" gateway.toml >"$work/gateway.toml"
  "$TOLLGATE" run -c "$work/gateway.toml" >/dev/null 2>"$work/log" &
  gateway=$!
  for _ in $(seq 200); do
    if listening "$port"; then return 0; fi
    kill -0 "$gateway" 2>/dev/null || break
    sleep 0.05
  done
  fail "the gateway does not start: $(cat "$work/log")"
}

# The processor time of the gateway's threads so far, in nanoseconds; 0 where the script has not started it.
gateway_time() {
  if [ -z "$gateway" ]; then
    echo 0
  else
    cat "/proc/$gateway/task/"*/schedstat | awk '{ sum += $1 } END { printf "%.0f", sum }'
  fi
}

# run TITLE URL: loads the URL with each tool.
run() {
  local tool command before busy
  for tool in "${tools[@]}"; do
    case $tool in
      wrk)
        command=(wrk "-t$threads" "-c$connections" "-d${seconds}s" --latency "$2")
        busy=$threads
        ;;
      oha)
        command=(oha --no-tui -z "${seconds}s" -c "$connections" "$2")
        busy=$(nproc)
        ;;
    esac
    printf '\n# %s\n$ %s\n' "$1" "${command[*]}"
    before=$(gateway_time)
    TIMEFORMAT='%U %S'
    { time "${command[@]}" 2>"$work/errors" || true; } 2>"$work/time"
    cat "$work/errors" >&2
    awk -v tool="$tool" -v gateway=$(($(gateway_time) - before)) -v seconds="$seconds" -v busy="$busy" \
      -v processors="$(nproc)" '
      {
        spent = $1 + $2
        printf "processors: "
        if (gateway > 0) printf "the gateway %.1f s, ", gateway / 1e9
        printf "%s %.1f s, of %.1f s (%d × %d s)\n", tool, spent, processors * seconds, processors, seconds
        if (spent >= 0.9 * busy * seconds)
          printf "%s was busy all the time, so it may be the bottleneck, and not the gateway\n", tool
      }' "$work/time"
  done
}

find_tools
if [ -n "$url" ]; then
  run "$url" "$url"
  exit
fi
start_gateway
run 'no limit: the route /health of gateway.toml' "http://127.0.0.1:$port/health"
run 'over its limit: the route /* of gateway.toml admits 10 requests, then one a second' "http://127.0.0.1:$port/"
