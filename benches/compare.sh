#!/usr/bin/env bash
# Measures tollgate beside nginx and HAProxy, in turn and before the same nginx backend, and prints tables.
#
#   benches/compare.sh TABLE…    some of them
#   benches/compare.sh all       all of them, written into docs/benchmarks.md and docs/benchmarks/*.md: about 40 minutes
#
#   proxied       CPU a proxied request, without a limit and with one that never refuses
#   keys          the same with a million keys
#   price         CPU a proxied request with one limit, three, and one in a local Redis, beside none: wrk and oha, HTTP/1.1 and
#                 HTTP/2 (needs wrk, oha and redis-server)
#   refused       CPU a refused request
#   close         CPU a request, with a connection for each
#   large         CPU a response of 1 MB
#   sizes         CPU a megabyte of responses of 100 KB, 1 MB and 100 MB, to 1, 16 and 256 connections, plain and over TLS,
#                 beside nginx with and without its temporary file (needs wrk and openssl)
#   websocket     CPU a message over WebSocket connections
#   churn         percentiles with many new connections beside many kept ones
#   tls           CPU a request over kept TLS connections and with a handshake, and a response of 100 KB (needs h2load, openssl)
#   http2         CPU a request over HTTP/2, with TLS and without (needs h2load and openssl)
#   payload       CPU a POST of 16 KB, and a response of 100 KB (needs h2load)
#   memory        memory of an idle kept connection: plain, TLS, HTTP/2 without TLS (needs openssl and python3)
#   credentials   CPU a request with a credential of each kind (needs openssl)
#   latency       percentiles at half of nginx's maximum rate
#   flood         percentiles of a client while other clients use new keys
#   slow          percentiles of a client while 10000 slow clients send a byte now and then
#   shared        CPU and percentiles with counters in a local Redis beside counters in memory (needs redis-server)
#   syscalls      system calls a proxied request (needs perf or strace)
#   allocations   allocations a request
#   inside        the output of `cargo bench` for decisions, the store, routes and keys
#   bodies        the same for values of bodies, and lines of logs
#
# From the environment:
#   ROUNDS=5  SECONDS_EACH=4  CONNECTIONS=64  KEYS=1000000
#   RATE=12000                    for latency and flood, instead of half of nginx's maximum rate
#   TOLLGATE=/path/to/tollgate    measures this one instead of building it
#   BASELINE=/path/to/tollgate    measures another one beside it
#   GATEWAYS='tollgate nginx'     measures only these
#
# All processes use the loopback and free ports, and end with the script. docs/benchmarks.md describes the method.
set -euo pipefail
cd "$(dirname "$0")/.."
for part in processes gateways tables document; do source "benches/compare/$part.sh"; done

tables=(proxied keys price refused close large sizes websocket tls http2 payload churn memory credentials latency flood slow shared
  syscalls allocations inside bodies)
rounds=${ROUNDS:-5}
seconds=${SECONDS_EACH:-4}
connections=${CONNECTIONS:-64}
many=${KEYS:-1000000}
half_rate=${RATE:-}
today=$(date -u +%Y-%m-%d)

# load NAME OPTION…: loads the server of that name, which is watched.
load() {
  local name=$1
  shift
  "$load" "127.0.0.1:${port[$name]}" --connections "$connections" --seconds "$seconds" --watch "${process[$name]}" "$@"
}

# record CASE NAME ROUND STATUS: adds a load's output to the results, if all responses had the expected status.
# Figures of a gateway with other responses could not be compared.
record() {
  local output
  output=$(cat)
  if grep -E '^(status|unanswered)' <<<"$output" | grep -qvE "^(status_$4 |unanswered 0)"; then
    fail "$2 in case $1 was to answer $4 throughout, but: ${output//$'\n'/, }"
  fi
  sed "s/^/$1 $2 $3 /" <<<"$output" >>"$work/results"
  awk -v name="$2" -v at="$1" '
    { value[$1] = $2 }
    END {
      printf "  %-9s %-9s %6.0f requests/s  CPU %6.2f µs  p99 %7.0f µs\n",
        at, name, value["requests_per_second"], value["cpu_us"], value["p99_us"]
    }' <<<"$output" >&2
}

# in_turn ROUND NAME…: the names, reversed every other round, then starting with another one, so that no gateway always has
# the same position or the same neighbour.
in_turn() {
  local round=$1 first
  shift
  first=$(((round - 1) / 2 % $#))
  set -- "${@:first + 1}" "${@:1:first}"
  if ((round % 2)); then printf '%s\n' "$@"; else printf '%s\n' "$@" | tac; fi
}

# fresh CASE STATUS NAME…: each round, each gateway is started, loaded and stopped.
fresh() {
  local at=$1 status=$2 round name
  shift 2
  for round in $(seq "$rounds"); do
    for name in $(in_turn "$round" "$@"); do
      start "$name" "$at"
      load "$name" "${load_options[@]}" | record "$at" "$name" "$round" "$status"
      stop "$name"
    done
  done
}

# Options of `load` in `fresh`.
load_options=()

# cpu_table [REQUEST]: what the CPU is divided by, `request` if it is not given.
cpu_table() {
  table "cpu_us:CPU_µs/${1:-request}:2 user_us:user:2 system_us:system:2 requests_per_second:${1:-request}s/s:0" 'nginx haproxy'
}

# table COLUMNS REFERENCES: prints the table of the results so far and deletes the results.
table() {
  LC_ALL=C awk -v columns="$1" -v references="$2" -v ratios="$work/ratios" -f benches/compare/table.awk "$work/results"
  rm "$work/results"
}

build() {
  local target=${CARGO_TARGET_DIR:-target}/release
  cargo build --release --locked --quiet --example load
  load=$target/examples/load
  if [ -z "${TOLLGATE:-}" ]; then
    cargo build --release --locked --quiet
    TOLLGATE=$target/tollgate
  fi
}

# missing PROGRAM [PACKAGE]
missing() { echo "compare.sh: \`$1\` is missing, so it is left out: apt-get install ${2:-$1}" >&2; }

# Sets `gateways`, those in every table, and `headers` and `others`, those in some tables.
find_gateways() {
  local name
  command -v nginx >/dev/null || fail "nginx is missing, and it is the backend too: apt-get install nginx"
  gateways=() headers=() others=()
  for name in ${GATEWAYS:-tollgate ${BASELINE:+baseline} nginx haproxy}; do
    case $name in
      tollgate | baseline) gateways+=("$name") ;;
      *) if command -v "$name" >/dev/null; then gateways+=("$name"); else missing "$name"; fi ;;
    esac
  done
  if [ -n "${GATEWAYS:-}" ]; then return 0; fi
  headers=(headers)
  for name in envoy traefik caddy; do
    # A version that does not accept its configuration is left out.
    if command -v "$name" >/dev/null && start "$name" unlimited; then
      stop "$name"
      others+=("$name")
    fi
  done
}

wanted=("$@")
if [ "$*" = all ]; then wanted=("${tables[@]}"); fi
for name in "${wanted[@]:-none}"; do
  case " ${tables[*]} " in
    *" $name "*) ;;
    *) sed -n '2,/^set/s/^# \?//p' "$0" >&2; exit 2 ;;
  esac
done

build
start_backend
find_gateways
touch "$work/ratios" "$work/musts"
for name in "${wanted[@]}"; do
  echo "$name" >&2
  # Not through a pipe: processes of a subshell could not be ended from here.
  "$name" >"$work/$name.md"
  printf '\n%s\n\n' "$(cat "$work/$name.md")"
done
printf '| traffic | to nginx | at most | to HAProxy | at most | measured | repeat |\n|---|---:|---:|---:|---:|---|---|\n'
traffic_rows
printf '\n| figure | measured | at most | reached | measured on | repeat |\n|---|---:|---:|---|---|---|\n'
figure_rows
if [ "$*" = all ]; then write_document; fi
