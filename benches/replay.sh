#!/usr/bin/env bash
# Measures `tollgate replay` and `tollgate suggest` beside GoAccess, on one core and with the same log, and prints a table:
# lines a second of processor time, and peak memory.
#
#   benches/replay.sh FORMAT…      combined or tollgate; GoAccess reads only combined
#   benches/replay.sh all          both
#
# From the environment:
#   LINES_EACH=10000000  KEYS=1000000  CORE=1
#   TOLLGATE=/path/to/tollgate       measures this one instead of building it
#
# Each key comes once in the first KEYS lines, and then at random, the first ones more often than the last. The log and the
# reports are in a temporary directory, which is deleted at the end; 10 million lines take 1.9 GB (combined) or 3.9 GB.
set -euo pipefail
cd "$(dirname "$0")/.."

lines=${LINES_EACH:-10000000}
keys=${KEYS:-1000000}
core=${CORE:-1}

fail() { echo "replay.sh: $*" >&2; exit 1; }

# generate FORMAT: prints the log.
generate() {
  LC_ALL=C TZ=UTC awk -v format="$1" -v lines="$lines" -v keys="$keys" '
    function random() { state = (state * 16807) % 2147483647; return state / 2147483647 }
    BEGIN {
      state = 7
      for (line = 0; line < lines; line++) {
        key = line < keys ? line * 7919 % keys : int(keys * random() * random())
        client = (10 + int(key / 65536)) "." (int(key / 256) % 256) "." (key % 256) ".7"
        if (line % 125 == 0) {
          second = 1769817600 + line / 125
          common = strftime("%d/%b/%Y:%H:%M:%S +0000", second)
          date = strftime("%Y-%m-%dT%H:%M:%S", second)
        }
        if (format == "combined")
          printf "%s - - [%s] \"GET /articles/%d?ref=home HTTP/1.1\" 200 5120 \"https://example.com/\" \"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\"\n", client, common, line % 5000
        else
          printf "{\"time\":\"%s.%06dZ\",\"method\":\"GET\",\"host\":\"example.com\",\"path\":\"/api/items/%d?page=2\",\"route\":\"items\",\"status\":200,\"bytes_in\":0,\"bytes_out\":5120,\"duration_ms\":12.345,\"upstream\":\"api/127.0.0.1:9001\",\"upstream_ms\":11.0,\"client\":\"%s\",\"consumer\":null,\"tier\":null,\"request_id\":\"0190c2a5f3b47a1e\",\"limit\":\"per-client\",\"decision\":\"allowed\",\"remaining\":99,\"cost\":1,\"error\":null}\n", date, line % 125 * 8000, line % 5000, client
      }
    }'
}

# measure NAME FORMAT COMMAND…: runs a command on one core, and prints a row of the table.
measure() {
  local name=$1 format=$2
  shift 2
  /usr/bin/time -v -o "$work/time" taskset -c "$core" "$@" >/dev/null 2>"$work/errors" ||
    fail "$name failed: $(tail -n 3 "$work/errors")"
  awk -v name="$name" -v format="$format" -v lines="$lines" '
    /User time/ { user = $NF }
    /System time/ { system_time = $NF }
    /Maximum resident/ { memory = $NF / 1024 }
    END {
      processor = user + system_time
      printf "| %-16s | %-8s | %9.0f | %9.2f | %11.0f |\n", name, format, lines / (processor > 0 ? processor : 0.01), processor, memory
    }' "$work/time"
}

[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \?//p' "$0" >&2; exit 2; }
formats=("$@")
if [ "$*" = all ]; then formats=(combined tollgate); fi
for format in "${formats[@]}"; do
  case $format in combined | tollgate) ;; *) fail "no format \`$format\`: combined or tollgate" ;; esac
done
[ -x /usr/bin/time ] || fail "/usr/bin/time is missing: apt-get install time"
awk 'BEGIN { exit strftime("%Y", 0, 1) != 1970 }' 2>/dev/null || fail "this awk has no strftime: apt-get install gawk"
if [ -z "${TOLLGATE:-}" ]; then
  cargo build --release --locked --quiet
  TOLLGATE=${CARGO_TARGET_DIR:-target}/release/tollgate
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/gateway.toml" <<'TOML'
[upstreams.echo]
servers = ["builtin:echo"]

[limits.per-client]
algorithm = "token-bucket"
key = "ip"
rate = "10/s"
burst = 20

[[routes]]
path = "/*"
upstream = "echo"
limits = ["per-client"]
TOML

printf '| %-16s | %-8s | %9s | %9s | %11s |\n' program format 'lines/s' 'CPU s' 'peak MiB'
printf '|------------------|----------|----------:|----------:|------------:|\n'
for format in "${formats[@]}"; do
  generate "$format" >"$work/access.log"
  measure 'tollgate replay' "$format" "$TOLLGATE" replay "$work/access.log" -c "$work/gateway.toml"
  measure 'tollgate suggest' "$format" "$TOLLGATE" suggest "$work/access.log" -c "$work/gateway.toml"
  if [ "$format" != combined ]; then continue; fi
  if command -v goaccess >/dev/null; then
    measure GoAccess combined goaccess --no-global-config --no-progress --log-format=COMBINED -o "$work/out.html" "$work/access.log"
  else
    echo 'replay.sh: `goaccess` is missing, so it is left out: apt-get install goaccess' >&2
  fi
done
