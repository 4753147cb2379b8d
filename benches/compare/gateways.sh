# The configuration of each gateway, as an expert in it would write it: two workers, connections kept alive on both sides,
# no log line for a request or a refusal. Sourced by ../compare.sh.
#
# GATEWAY_config CASE prints a configuration for the port `free` before the backend at `backend`; GATEWAY_run FILE runs it
# in the foreground. The cases:
#   unlimited  no limit
#   admitted   a limit by client address that never refuses
#   keys       a limit by `x-api-key` that never refuses: a unit takes a minute to come back, so that keys stay live
#   three      (tollgate) three limits that never refuse: by client address, by a header, and one for all
#   refused    a limit by client address that is used up
#   slow       (tollgate) no limit, and room for many connections
#   churn      no limit, and room for many connections
#   websocket  no limit, and connections that become WebSocket
#   plain, tls, tls-h2, h2c, h2c-both   no limit, room for many connections, and a listener of this kind: tls-h2 agrees on
#              HTTP/2, and h2c-both has a backend of HTTP/2, too
#   api-key, token, password, service, service-cached   no limit, and a credential of this kind
#   flood      (tollgate) a limit by `x-api-key` whose keys stay live for a day, in a store of exactly that size

start_backend() {
  find_free_port
  backend=$free
  until find_free_port; [ "$free" != "$backend" ]; do :; done
  backend_h2=$free
  # nginx as root reads files as another user.
  chmod 711 "$work"
  mkdir "$work/files"
  head -c 1000000 /dev/zero | tr '\0' x >"$work/files/large"
  head -c 100000 /dev/zero | tr '\0' x >"$work/files/medium"
  head -c 100000000 /dev/zero | tr '\0' x >"$work/files/huge"
  nginx_http >"$work/backend.conf" <<CONF
  server { listen 127.0.0.1:$backend reuseport; default_type text/plain; root $work/files;
    location = /auth { return 204; }
    location / { return 200 "ok\n"; }
    location = /medium { sendfile on; }
    location = /large { sendfile on; }
    location = /huge { sendfile on; }
  }
  server { listen 127.0.0.1:$backend_h2 reuseport http2; default_type text/plain;
    location / { return 200 "ok\n"; }
  }
CONF
  run_server backend nginx -p "$work" -c "$work/backend.conf"
}

make_certificate() {
  mkdir -p "$work/tls"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -keyout "$work/tls/key" -out "$work/tls/cert" 2>/dev/null
  cat "$work/tls/cert" "$work/tls/key" >"$work/tls/both"
}

# start GATEWAY CASE [NAME]: under its own name if none is given.
start() {
  local name=${3:-$1}
  find_free_port
  "$1_config" "$2" >"$work/$name.conf"
  run_server "$name" "$1_run" "$work/$name.conf"
}

tollgate_config() {
  local numbers='' names='"l"' use='' auth='' algorithm=token-bucket max_keys=1500000 max_connections=10000
  local server="\"http://127.0.0.1:$backend\""
  case $1 in
    admitted) numbers='key = "ip"
rate = "1000000/s"' ;;
    keys) numbers='key = "header:x-api-key"
rate = "1/min"
burst = 1000' ;;
    three) numbers='key = "ip"
rate = "1000000/s"
[limits.m]
algorithm = "token-bucket"
key = "header:user-agent"
missing = "skip"
rate = "1000000/s"
[limits.n]
algorithm = "token-bucket"
key = "global"
rate = "1000000/s"' names='"l", "m", "n"' ;;
    refused) numbers='key = "ip"
rate = "1/day"' ;;
    api-key) auth=$'type = "api-key"\nfrom = "header:x-api-key"\nfile = "'$work$'/consumers.csv"' ;;
    token) auth=$'type = "jwt"\nsecret_env = "TOLLGATE_BENCH_SECRET"' ;;
    password) auth=$'type = "basic"\nfile = "'$work$'/users"' ;;
    service) auth=$'type = "forward"\nurl = "http://127.0.0.1:'$backend$'/auth"' ;;
    service-cached) auth=$'type = "forward"\ncache = "1min"\nurl = "http://127.0.0.1:'$backend$'/auth"' ;;
    slow | churn | plain | tls | tls-h2 | h2c) max_connections=15000 ;;
    h2c-both) server=$'{ servers = ["http://127.0.0.1:'$backend_h2$'"], protocol = "http2" }' ;;
    flood) algorithm=fixed-window max_keys=$many numbers='key = "header:x-api-key"
rate = "1000000000/day"
align = "first-request"' ;;
  esac
  if [ -n "$numbers" ]; then
    use="limits = [$names]"
    numbers=$'[limits.l]\nalgorithm = "'$algorithm$'"\n'$numbers
  fi
  if [ -n "$auth" ]; then
    use='auth = "a"'
    numbers=$'[auth.a]\n'$auth
  fi
  cat <<CONF
[server]
listen = ["127.0.0.1:$free"]
workers = 2
max_connections = $max_connections
ratelimit_headers = "${ratelimit_headers:-off}"
$(if [[ $1 = tls* ]]; then printf '[[server.tls]]\ncert = "%s"\nkey = "%s"' "$work/tls/cert" "$work/tls/key"; fi)
[store]
max_keys = $max_keys
${store:-}
[log]
access = "off"
level = "error"
[upstreams]
api = $server
[[routes]]
path = "/*"
upstream = "api"
$use
$numbers
CONF
}
tollgate_run() { exec "$TOLLGATE" run -c "$1"; }

# The same, with both families of rate-limit headers, which the others cannot send.
headers_config() { ratelimit_headers=both tollgate_config "$1"; }
headers_run() { tollgate_run "$1"; }

# The same with its counters in the Redis at `redis`.
redis_config() { store=$'backend = "redis"\nurl = "redis://127.0.0.1:'$redis$'"' tollgate_config "$1"; }
redis_run() { tollgate_run "$1"; }

# tollgate without a limit, with one, with three, and with one in Redis: for the table `price`.
none_config() { tollgate_config unlimited; }
none_run() { tollgate_run "$1"; }
one_config() { tollgate_config admitted; }
one_run() { tollgate_run "$1"; }
three_config() { tollgate_config three; }
three_run() { tollgate_run "$1"; }

start_redis() {
  find_free_port
  redis=$free
  run_server store redis-server --port "$redis" --bind 127.0.0.1 --save '' --appendonly no
}

# Another build of tollgate, to measure the effect of a change.
baseline_config() { tollgate_config "$1"; }
baseline_run() { exec "$BASELINE" run -c "$1"; }

nginx_http() { # the inside of the http block on standard input
  cat <<CONF
daemon off;
worker_processes 2;
pid $work/nginx-$free.pid;
error_log stderr crit;
events { worker_connections 16384; }
http {
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 60s;
  # The largest part of a response that is stored on disk on its way.
  proxy_max_temp_file_size ${temp_file:-0};
  client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3;
  uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
$(cat)
}
CONF
}
nginx_config() {
  local listen=reuseport connection='""' pass='proxy_pass http://api' to=$backend
  local zone='' limit=''
  case $1 in
    admitted)
      zone='limit_req_zone $binary_remote_addr zone=l:10m rate=1000000r/s;'
      limit='limit_req zone=l burst=1000000 nodelay;' ;;
    keys)
      zone='limit_req_zone $http_x_api_key zone=l:256m rate=1r/m;'
      limit='limit_req zone=l burst=1000 nodelay;' ;;
    refused)
      zone='limit_req_zone $binary_remote_addr zone=l:10m rate=1r/m;'
      limit='limit_req zone=l;' ;;
    password) limit="auth_basic api; auth_basic_user_file $work/users;" ;;
    service) limit='auth_request /auth;' ;;
    tls) listen="reuseport ssl; ssl_certificate $work/tls/cert; ssl_certificate_key $work/tls/key" ;;
    tls-h2) listen="reuseport ssl http2; ssl_certificate $work/tls/cert; ssl_certificate_key $work/tls/key" ;;
    h2c) listen='reuseport http2' ;;
    h2c-both) listen='reuseport http2' pass='grpc_pass grpc://api' to=$backend_h2 ;;
    websocket) connection='upgrade; proxy_set_header Upgrade $http_upgrade' ;;
  esac
  nginx_http <<CONF
  limit_req_status 429;
  limit_req_log_level info;
  $zone
  upstream api { server 127.0.0.1:$to; keepalive 256; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:$free $listen;
    location = /auth { internal; proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_pass_request_body off; proxy_set_header Content-Length ""; }
    location / { $limit $pass; proxy_http_version 1.1; proxy_set_header Connection $connection; }
  }
CONF
}
nginx_run() { exec nginx -p "$work" -c "$1"; }

# The same as it is without that setting: a response that its client reads slowly is stored on disk.
stored_config() { temp_file=1024m nginx_config "$1"; }
stored_run() { nginx_run "$1"; }

haproxy_config() {
  local limit='' bind='' to=$backend proto=''
  case $1 in
    admitted) limit='stick-table type ip size 1m expire 60s store http_req_rate(60s)
  http-request track-sc0 src
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt 2000000000 }' ;;
    keys) limit='stick-table type string len 16 size 2m expire 1h store http_req_rate(60s)
  http-request track-sc0 req.hdr(x-api-key)
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1000 }' ;;
    refused) limit='stick-table type ip size 1m expire 60s store http_req_rate(60s)
  http-request track-sc0 src
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1 }' ;;
    tls) bind="ssl crt $work/tls/both" ;;
    tls-h2) bind="ssl crt $work/tls/both alpn h2" ;;
    h2c) bind='proto h2' ;;
    h2c-both) bind='proto h2' to=$backend_h2 proto=' proto h2' ;;
  esac
  cat <<CONF
global
  nbthread 2
  maxconn 9000
defaults
  mode http
  no log
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  option http-keep-alive
  http-reuse always
frontend f
  bind 127.0.0.1:$free $bind
  $limit
  default_backend b
backend b
  server s 127.0.0.1:$to$proto
CONF
}
haproxy_run() { exec haproxy -db -f "$1"; }

# The others have no comparable limit by default, or count it otherwise, so they are measured without one.
envoy_config() {
  cat <<CONF
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: $free } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: f
          codec_type: HTTP1
          generate_request_id: false
          route_config:
            virtual_hosts:
            - { name: all, domains: ["*"], routes: [{ match: { prefix: "/" }, route: { cluster: api } }] }
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
              suppress_envoy_headers: true
              dynamic_stats: false
  clusters:
  - name: api
    type: STATIC
    load_assignment:
      cluster_name: api
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: $backend } } } }] }]
CONF
}
envoy_run() { exec envoy --config-yaml "$(<"$1")" --concurrency 2 --log-level error --disable-hot-restart; }

traefik_config() {
  cat <<CONF
http:
  routers: { all: { rule: "PathPrefix(\`/\`)", service: api } }
  services: { api: { loadBalancer: { servers: [{ url: "http://127.0.0.1:$backend" }], serversTransport: kept } } }
  serversTransports: { kept: { maxIdleConnsPerHost: 256 } }
CONF
}
traefik_run() {
  GOMAXPROCS=2 exec traefik --entryPoints.f.address="127.0.0.1:$free" --providers.file.filename="$1" --log.level=ERROR \
    --global.checkNewVersion=false --global.sendAnonymousUsage=false
}

caddy_config() {
  cat <<CONF
{
  admin off
  auto_https off
  persist_config off
}
http://:$free {
  bind 127.0.0.1
  reverse_proxy 127.0.0.1:$backend {
    transport http {
      keepalive_idle_conns_per_host 256
    }
  }
}
CONF
}
caddy_run() {
  GOMAXPROCS=2 XDG_DATA_HOME=$work XDG_CONFIG_HOME=$work exec caddy run --config "$1" --adapter caddyfile
}
