#!/usr/bin/env bash
# Loads tollgate, nginx (limit_req) and HAProxy (a stick table) in turn with wrk, before the same nginx backend, and
# prints requests a second and CPU microseconds a request: with no limit, with a limit that admits, and refused.
#
#   benches/compare.sh [ROUNDS] [SECONDS]      3 rounds of 4 s by default: about two and a half minutes
#
# Everything stays on the loopback, on free ports, and ends with the script. Connections are kept alive on both sides,
# every gateway has two workers, nobody writes an access log. The order turns round from round to round, and medians are
# printed. CPU is utime + stime of the gateway's own processes, so that what wrk and the backend burn does not count;
# requests a second on a small machine say as much about wrk and the backend, which share its processors.
# Wants the packages nginx, haproxy and wrk, and cargo (or TOLLGATE=/path/to/tollgate).
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-3}
seconds=${2:-4}
connections=${CONNECTIONS:-64}
gates=(tollgate nginx haproxy)
cases=(unlimited admitted refused)

for tool in nginx haproxy wrk; do
  command -v "$tool" >/dev/null || { echo "compare.sh: \`$tool\` is missing: apt-get install $tool" >&2; exit 2; }
done
if [ -z "${TOLLGATE:-}" ]; then
  cargo build --release --locked --quiet
  TOLLGATE=target/release/tollgate
fi

work=$(mktemp -d)
started=()
finish() {
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A port on which nobody listens, below those that the system gives to outgoing connections. Sets `port`.
free_port() {
  for _ in $(seq 100); do
    port=$((12000 + RANDOM % 18000))
    listening "$port" || return 0
  done
  echo "compare.sh: no free port" >&2
  exit 1
}

# start NAME PORT COMMAND…: runs a server in the background until it listens. Sets `server`.
start() {
  local name=$1 at=$2
  shift 2
  "$@" >"$work/$name.log" 2>&1 &
  server=$!
  started+=("$server")
  for _ in $(seq 100); do
    if listening "$at"; then return 0; fi
    kill -0 "$server" 2>/dev/null || break
    sleep 0.05
  done
  echo "compare.sh: $name does not start:" >&2
  cat "$work/$name.log" >&2
  exit 1
}

nginx_file() { # PORT, then the http block's inside on standard input
  cat <<CONF
daemon off; worker_processes 2; pid $work/nginx-$1.pid; error_log $work/nginx-$1.err crit;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000000; keepalive_timeout 60s;
  client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3;
  uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
$(cat)
}
CONF
}

start_backend() {
  free_port
  backend=$port
  nginx_file "$backend" >"$work/backend.conf" <<CONF
  server { listen 127.0.0.1:$backend; location / { default_type text/plain; return 200 "ok\n"; } }
CONF
  start backend "$backend" nginx -p "$work" -c "$work/backend.conf"
}

start_tollgate() { # CASE
  local limits='' table=''
  case $1 in
    admitted) limits='limits = ["l"]' table='rate = "1000000/s"' ;;
    refused) limits='limits = ["l"]' table='rate = "1/day"' ;;
  esac
  if [ -n "$table" ]; then table=$'[limits.l]\nalgorithm = "token-bucket"\nkey = "ip"\n'$table; fi
  cat >"$work/gateway.toml" <<CONF
[server]
listen = ["127.0.0.1:$port"]
workers = 2
[log]
access = "off"
level = "error"
[upstreams]
api = "http://127.0.0.1:$backend"
[[routes]]
path = "/*"
upstream = "api"
$limits
$table
CONF
  start tollgate "$port" "$TOLLGATE" run -c "$work/gateway.toml"
}

start_nginx() { # CASE
  local zone='' use=''
  case $1 in
    admitted) zone='limit_req_zone $binary_remote_addr zone=l:10m rate=1000000r/s;' use='limit_req zone=l burst=1000000 nodelay;' ;;
    refused) zone='limit_req_zone $binary_remote_addr zone=l:10m rate=1r/m;' use='limit_req zone=l; limit_req_status 429; limit_req_log_level info;' ;;
  esac
  nginx_file "$port" >"$work/nginx.conf" <<CONF
  $zone
  upstream api { server 127.0.0.1:$backend; keepalive 256; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:$port;
    location / { $use proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
CONF
  start nginx "$port" nginx -p "$work" -c "$work/nginx.conf"
}

start_haproxy() { # CASE
  local rule=''
  case $1 in
    admitted) rule='http-request deny deny_status 429 if { sc_http_req_rate(0) gt 2000000000 }' ;;
    refused) rule='http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1 }' ;;
  esac
  if [ -n "$rule" ]; then rule="stick-table type ip size 1m expire 60s store http_req_rate(60s)
  http-request track-sc0 src
  $rule"; fi
  cat >"$work/haproxy.cfg" <<CONF
global
  nbthread 2
  maxconn 4096
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  option http-keep-alive
  http-reuse always
frontend f
  bind 127.0.0.1:$port
  $rule
  default_backend b
backend b
  server s 127.0.0.1:$backend
CONF
  start haproxy "$port" haproxy -db -f "$work/haproxy.cfg"
}

# CPU ticks that a process and its children have used so far.
ticks() {
  local pid sum=0 stat
  for pid in "$1" $(pgrep -P "$1" || true); do
    stat=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
    # The name may hold blanks; count the fields behind it.
    set -- ${stat##*) }
    sum=$((sum + ${12} + ${13}))
  done
  echo "$sum"
}

hertz=$(getconf CLK_TCK)

# measure GATE CASE: one run; appends `GATE CASE REQUESTS_PER_SECOND MICROSECONDS` to the results.
measure() {
  local gate=$1 case=$2 before after out requests rate
  free_port
  "start_$gate" "$case"
  wrk -t2 -c"$connections" -d1s "http://127.0.0.1:$port/" >/dev/null
  before=$(ticks "$server")
  out=$(wrk -t2 -c"$connections" -d"${seconds}s" "http://127.0.0.1:$port/")
  after=$(ticks "$server")
  kill -QUIT "$server" 2>/dev/null || true
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  requests=$(awk '/requests in/ { print $1 }' <<<"$out")
  rate=$(awk '/^Requests\/sec:/ { print $2 }' <<<"$out")
  check_answers "$gate" "$case" "$out"
  awk -v gate="$gate" -v case="$case" -v rate="$rate" -v ticks=$((after - before)) -v hertz="$hertz" -v n="$requests" \
    'BEGIN { printf "%s %s %.0f %.2f\n", gate, case, rate, ticks / hertz * 1e6 / n }' | tee -a "$work/results" >&2
}

# A gateway that answers otherwise than the case wants would be compared with nothing.
check_answers() {
  local refused
  refused=$(awk '/Non-2xx or 3xx responses:/ { print $NF }' <<<"$3")
  if [ "$2" = refused ] && [ -z "$refused" ] || [ "$2" != refused ] && [ -n "$refused" ]; then
    echo "compare.sh: $1 was to be \`$2\`, but wrk counted ${refused:-no} refusals" >&2
    exit 1
  fi
}

report() {
  awk '
    function median(list,    parts, n, i, j, swap) {
      n = split(list, parts, " ")
      for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (parts[j] + 0 < parts[i] + 0) { swap = parts[i]; parts[i] = parts[j]; parts[j] = swap }
      return n % 2 ? parts[(n + 1) / 2] : (parts[n / 2] + parts[n / 2 + 1]) / 2
    }
    { rate[$1, $2] = rate[$1, $2] " " $3; cpu[$1, $2] = cpu[$1, $2] " " $4 }
    END {
      printf "\n%-10s %-9s %12s %14s %16s\n", "case", "gateway", "requests/s", "CPU us/request", "CPU to nginx"
      cases = split("unlimited admitted refused", case_of, " "); gates = split("tollgate nginx haproxy", gate_of, " ")
      for (c = 1; c <= cases; c++) for (g = 1; g <= gates; g++) {
        own = median(cpu[gate_of[g], case_of[c]]); nginx = median(cpu["nginx", case_of[c]])
        printf "%-10s %-9s %12.0f %14.2f %15.2fx\n", case_of[c], gate_of[g], median(rate[gate_of[g], case_of[c]]), own, nginx ? own / nginx : 0
      }
    }' "$work/results"
}

start_backend
for round in $(seq "$rounds"); do
  order=("${gates[@]}")
  if ((round % 2 == 0)); then order=(haproxy nginx tollgate); fi
  for case in "${cases[@]}"; do
    for gate in "${order[@]}"; do measure "$gate" "$case"; done
  done
done
report
