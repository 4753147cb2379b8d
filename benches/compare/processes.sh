# Servers that are started for a measurement and always ended. Sourced by ../compare.sh.

work=$(mktemp -d)
# Process id and port of each running server, by name.
declare -A process port

finish() {
  trap - EXIT INT TERM
  local background
  background=$(jobs -p)
  # shellcheck disable=SC2086 # a list of numbers
  [ -z "$background" ] || kill $background 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

fail() {
  echo "compare.sh: $*" >&2
  exit 1
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

# run_server NAME COMMAND…: runs a server in the background until it listens at `free`; false if it does not.
run_server() {
  local name=$1
  shift
  "$@" >"$work/$name.log" 2>&1 &
  process[$name]=$!
  port[$name]=$free
  for _ in $(seq 200); do
    if listening "$free"; then return 0; fi
    kill -0 "${process[$name]}" 2>/dev/null || break
    sleep 0.05
  done
  echo "compare.sh: $name does not start: $(cat "$work/$name.log")" >&2
  return 1
}

# stop NAME…: ends servers and waits for their end. No client is connected any more, so there is nothing to drain.
stop() {
  local name
  for name in "$@"; do
    kill "${process[$name]}" 2>/dev/null || true
    wait "${process[$name]}" 2>/dev/null || true
    unset "process[$name]" "port[$name]"
  done
}
