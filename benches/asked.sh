#!/usr/bin/env bash
# What a decision costs that others ask for, beside a proxied request with the same limit: a table of Markdown, by h2load.
# docs/benchmarks/decisions.md has figures.
#
#   benches/asked.sh
#
# From the environment:
#   REDIS=redis://127.0.0.1:6379  counters there instead of in memory
#   CALLS=300000  ROUNDS=3        of each kind; the round with the median CPU time is shown
#   TOLLGATE=/path/to/tollgate    the binary to start; target/release/tollgate
#   LIMITADOR=/path/to/limitador-server  measured beside it with the same message, and with the same store
#   ENVOY=/path/to/envoy          proxied requests, too: the CPU time of Envoy and of the service that it asks
set -euo pipefail

calls=${CALLS:-300000}
rounds=${ROUNDS:-3}
binary=${TOLLGATE:-$(dirname "$0")/../target/release/tollgate}
limitador=${LIMITADOR:-}
envoy=${ENVOY:-}
processes=()

fail() {
  echo "asked.sh: $*" >&2
  exit 1
}

command -v h2load >/dev/null || fail "h2load is missing: apt-get install nghttp2-client"
[ -x "$binary" ] || fail "$binary is missing: cargo build --release"

work=$(mktemp -d)
finish() {
  local process
  for process in "${processes[@]}"; do
    kill "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Sets `free`: a port without a listener, below the range for outgoing connections.
find_free_port() {
  for _ in $(seq 100); do
    free=$((12000 + RANDOM % 18000))
    listening "$free" || return 0
  done
  fail "no free port"
}

# Starts a program, the arguments from $2 on, which listens on port $1. Sets `started`.
start() {
  local port=$1
  shift
  "$@" >"$work/log" 2>&1 &
  started=$!
  processes+=("$started")
  for _ in $(seq 100); do
    if listening "$port"; then return 0; fi
    sleep 0.05
  done
  cat "$work/log" >&2
  fail "$1 does not listen"
}

find_free_port && backend=$free
find_free_port && proxy=$free
find_free_port && decisions=$free
cat >"$work/backend.toml" <<TOML
[server]
listen = ["127.0.0.1:$backend"]
workers = 1
[[routes]]
path = "/*"
respond = { status = 200, body = "ok" }
[log]
access = "off"
TOML
cat >"$work/gateway.toml" <<TOML
[server]
listen = ["127.0.0.1:$proxy"]
workers = 1
trusted_proxies = ["127.0.0.1"]
[decisions]
listen = "127.0.0.1:$decisions"
[log]
access = "off"
[upstreams]
backend = "http://127.0.0.1:$backend"
[limits.per-client]
algorithm = "token-bucket"
key = "ip"
rate = "1000000/s"
[limits.per-address]
algorithm = "token-bucket"
key = "descriptor:remote_address"
rate = "1000000/s"
[[descriptors]]
domain = "shop"
match = { generic_key = "search", remote_address = "*" }
limits = ["per-address"]
[[routes]]
path = "/*"
upstream = "backend"
limits = ["per-client"]
TOML
if [ -n "${REDIS:-}" ]; then
  printf '[store]\nbackend = "redis"\nurl = "%s"\nsecret = "0123456789abcdef0123456789abcdef"\n' "$REDIS" >>"$work/gateway.toml"
fi
start "$backend" "$binary" -c "$work/backend.toml"
start "$proxy" "$binary" -c "$work/gateway.toml"
gateway=$started

# A call of Envoy: domain shop, generic_key=search, remote_address=192.0.2.1; five bytes of gRPC before it.
printf '\0\0\0\0\x3c\x0a\x04shop\x12\x34\x0a\x15\x0a\x0bgeneric_key\x12\x06search\x0a\x1b\x0a\x0eremote_address\x12\x09192.0.2.1' >"$work/call"
printf '{"url":"/cart","ip":"192.0.2.1"}' >"$work/question"

# The CPU time of the processes in `measured`, microseconds.
cpu() {
  local process
  for process in "${measured[@]}"; do cat "/proc/$process/stat"; done | awk '{sum += $14 + $15} END {print sum * 10000}'
}

# Measures the kind $1; the other arguments are those of h2load.
measure() {
  local name=$1 before after
  shift
  for _ in $(seq "$rounds"); do
    before=$(cpu)
    h2load -n "$calls" -t 1 --log-file="$work/times" "$@" >"$work/report" || fail "h2load failed"
    after=$(cpu)
    grep -q "$calls 2xx, 0 3xx, 0 4xx, 0 5xx" "$work/report" || { cat "$work/report" >&2; fail "$name: not all are admitted"; }
    local rate p99
    rate=$(sed -n 's/^finished in [^,]*, \([0-9]*\).*/\1/p' "$work/report")
    p99=$(cut -f 3 "$work/times" | sort -n | sed -n "$((calls * 99 / 100))p")
    rm "$work/times"
    echo "$(((after - before) * 100 / calls)) $rate $p99"
  done | sort -n | sed -n "$(((rounds + 1) / 2))p" |
    awk -v name="$name" '{printf "| %s | %d,%03d | %.1f µs | %.2f ms |\n", name, $2 / 1000, $2 % 1000, $1 / 100, $3 / 1000}'
}

measured=("$gateway")
echo "| call | a second | CPU a call | p99 |"
echo "|---|---:|---:|---:|"
service=envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit
grpc=(-H 'content-type: application/grpc' -H 'te: trailers' -d "$work/call")
measure 'Envoy, rate limit service by gRPC' -c 8 -m 10 "${grpc[@]}" \
  "http://127.0.0.1:$decisions/$service"
about=(-H 'x-forwarded-method: GET' -H 'x-forwarded-proto: https' -H 'x-forwarded-host: shop.example'
  -H 'x-forwarded-uri: /cart' -H 'x-forwarded-for: 192.0.2.1')
measure 'Traefik and Caddy, `/check/forwarded`' --h1 -c 32 "${about[@]}" "http://127.0.0.1:$decisions/check/forwarded"
measure 'an application, `/v1/decide`' --h1 -c 32 -d "$work/question" "http://127.0.0.1:$decisions/v1/decide"
measure 'for comparison: a proxied request' --h1 -c 32 -H 'x-forwarded-for: 192.0.2.1' "http://127.0.0.1:$proxy/cart"

if [ -n "$limitador" ]; then
  # The same limit: a window of a second in place of a bucket, which Limitador does not know.
  cat >"$work/limits.yaml" <<YAML
- namespace: shop
  max_value: 1000000
  seconds: 1
  conditions: ["descriptors[0]['generic_key'] == 'search'"]
  variables: ["descriptors[0]['remote_address']"]
YAML
  store=(memory)
  if [ -n "${REDIS:-}" ]; then store=(redis "$REDIS"); fi
  find_free_port && rls=$free
  find_free_port && http=$free
  start "$rls" "$limitador" -b 127.0.0.1 -p "$rls" -B 127.0.0.1 -P "$http" "$work/limits.yaml" "${store[@]}"
  limitador_process=$started
  measured=("$limitador_process")
  measure 'for comparison: Limitador, the same call by gRPC' -c 8 -m 10 "${grpc[@]}" "http://127.0.0.1:$rls/$service"
fi

# Measures a request through Envoy, which asks the service on port $2, the process $3.
measure_envoy() {
  find_free_port && local listen=$free
  cat >"$work/envoy.yaml" <<YAML
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: $listen } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: shop
          use_remote_address: true
          route_config:
            virtual_hosts:
            - name: shop
              domains: ["*"]
              routes:
              - match: { prefix: / }
                route:
                  cluster: shop
                  rate_limits: [{ actions: [{ generic_key: { descriptor_value: search } }, { remote_address: {} }] }]
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: shop
              timeout: 20s
              failure_mode_deny: true
              rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: service } } }
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: shop
    load_assignment:
      cluster_name: shop
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: $backend } } }
  - name: service
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
    load_assignment:
      cluster_name: service
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: $2 } } }
YAML
  start "$listen" "$envoy" --concurrency 1 --use-dynamic-base-id -l error -c "$work/envoy.yaml"
  measured=("$started" "$3")
  measure "$1" --h1 -c 32 "http://127.0.0.1:$listen/cart"
  kill "$started"
}

if [ -n "$envoy" ]; then
  measure_envoy 'a request through Envoy and tollgate' "$decisions" "$gateway"
  if [ -n "$limitador" ]; then
    measure_envoy 'a request through Envoy and Limitador' "$rls" "$limitador_process"
  fi
fi
