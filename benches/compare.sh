#!/usr/bin/env bash
# Measures tollgate beside nginx and HAProxy, in turn and before the same nginx backend, and prints tables.
#
#   benches/compare.sh [TABLE…]
#
#   proxied      CPU a proxied request, without a limit and with one that admits
#   refused      CPU a refused request
#
# Environment: ROUNDS=5, SECONDS_EACH=4, CONNECTIONS=64, TOLLGATE=/path/to/tollgate (else it is built),
# BASELINE=/path/to/another (measured as well), GATEWAYS="tollgate headers nginx haproxy".
#
# Everything stays on the loopback, on free ports, and ends with the script. The order turns round from round to round.
# CPU is what the gateway's own processes used, to the nanosecond, by the requests that were answered meanwhile: what the load
# and the backend burn beside it on the same processors does not count.
set -euo pipefail
cd "$(dirname "$0")/.."
source benches/compare/processes.sh
source benches/compare/gateways.sh

rounds=${ROUNDS:-5}
seconds=${SECONDS_EACH:-4}
connections=${CONNECTIONS:-64}

# load NAME OPTION…: loads the server of that name.
load() {
  local name=$1
  shift
  "$load" "127.0.0.1:${port[$name]}" --connections "$connections" --seconds "$seconds" --watch "${process[$name]}" "$@"
}

# record CASE NAME ROUND STATUS: takes a load's output for the results, if all answers were as the case wants them.
# A gateway that answers otherwise would be compared with nothing.
record() {
  local output
  output=$(cat)
  if grep -E '^(status|unanswered)' <<<"$output" | grep -qvE "^(status_$4 |unanswered 0)"; then
    fail "$2 in case $1 was to answer $4 throughout, but: ${output//$'\n'/, }"
  fi
  sed "s/^/$1 $2 $3 /" <<<"$output" >>"$work/results"
  awk -v name="$2" -v at="$1" '
    { value[$1] = $2 }
    END { printf "  %-9s %-9s %6.0f requests/s  CPU %6.2f µs  p99 %7.0f µs\n", at, name, value["requests_per_second"], value["cpu_us"], value["p99_us"] }
  ' <<<"$output" >&2
}

# in_turn ROUND NAME…: the names, from behind in every other round.
in_turn() {
  local round=$1
  shift
  if ((round % 2)); then printf '%s\n' "$@"; else printf '%s\n' "$@" | tac; fi
}

cpu_table() {
  table 'cpu_us:CPU_µs/request:2 user_us:user:2 system_us:system:2 requests_per_second:requests/s:0' 'nginx haproxy'
}

# table COLUMNS REFERENCES: of the results so far, which are then forgotten.
table() {
  echo
  LC_ALL=C awk -v columns="$1" -v references="$2" -v ratios="$work/ratios" -f benches/compare/table.awk "$work/results"
  rm "$work/results"
}

# fresh CASE STATUS NAME…: each round, each gateway is started, loaded and stopped.
fresh() {
  local at=$1 status=$2 round name
  shift 2
  for round in $(seq "$rounds"); do
    for name in $(in_turn "$round" "$@"); do
      start "$name" "$at"
      load "$name" | record "$at" "$name" "$round" "$status"
      stop "$name"
    done
  done
}

proxied() {
  fresh unlimited 200 "${gateways[@]/headers/}"
  fresh admitted 200 "${gateways[@]}"
  cpu_table
}

refused() {
  fresh refused 429 "${gateways[@]}"
  cpu_table
}

build() {
  cargo build --release --locked --quiet --example load
  load=${CARGO_TARGET_DIR:-target}/release/examples/load
  if [ -z "${TOLLGATE:-}" ]; then
    cargo build --release --locked --quiet
    TOLLGATE=${CARGO_TARGET_DIR:-target}/release/tollgate
  fi
}

find_gateways() {
  local name
  gateways=()
  for name in ${GATEWAYS:-tollgate headers ${BASELINE:+baseline} nginx haproxy}; do
    case $name in
      tollgate | headers | baseline) gateways+=("$name") ;;
      *) if command -v "$name" >/dev/null; then gateways+=("$name"); else echo "compare.sh: \`$name\` is missing: apt-get install $name" >&2; fi ;;
    esac
  done
  command -v nginx >/dev/null || fail "nginx is the backend too: apt-get install nginx"
}

build
find_gateways
start_backend
for name in "${@:-proxied}"; do "$name"; done
