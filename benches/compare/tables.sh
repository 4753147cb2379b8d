# The tables: the gateways to start, the load, and the columns. Sourced by ../compare.sh.

# Without a limit, and with one that never refuses.
proxied() {
  fresh unlimited 200 "${gateways[@]}" "${others[@]}"
  fresh admitted 200 "${gateways[@]}" "${headers[@]}"
  cpu_table
}

# The price of a limit: three limits, and one in a local Redis, beside none.
price() {
  local program
  for program in wrk oha redis-server; do
    command -v "$program" >/dev/null || { missing "$program"; return 0; }
  done
  start_redis
  by_command wrk-http1.1 wrk -t 2 -c "$connections" -d "${seconds}s"
  by_command oha-http1.1 oha --no-tui --output-format json -z "${seconds}s" -c "$connections"
  by_command oha-http2 oha --no-tui --output-format json -z "${seconds}s" -c 8 -p 8 --http2
  stop store
  table 'cpu_us:CPU_µs/request:2 requests_per_second:requests/s:0' none
}

# by_command CASE COMMAND…: the cost of a request from this generator of load, for `price`.
by_command() {
  local at=$1 round name output spent
  shift
  for round in $(seq "$rounds"); do
    for name in $(in_turn "$round" none one three redis); do
      start "$name" admitted
      spent=$(nanoseconds "$name")
      output=$("$@" "http://127.0.0.1:${port[$name]}/")
      awk -v spent=$(($(nanoseconds "$name") - spent)) '
        / requests in / { total = good = $1; sub("s,", "", $4); took = $4 }
        /Non-2xx/ { good -= $NF }
        /"total":/ && !took { gsub(/[^0-9.]/, "", $2); took = $2 }
        /"statusCodeDistribution"/ { inside = 1; next }
        inside && /}/ { inside = 0 }
        inside { gsub(/[",:]/, ""); total += $2; if ($1 == 200) good = $2 }
        END {
          printf "requests %d\nunanswered %d\nstatus_200 %d\n", total, total - good, good
          if (good) printf "cpu_us %.3f\nrequests_per_second %.1f\n", spent / good / 1e3, good / took
        }' <<<"$output" | record "$at" "$name" "$round" 200
      stop "$name"
    done
  done
}

# A limit that is used up.
refused() {
  fresh refused 429 "${gateways[@]}" "${headers[@]}"
  cpu_table
}

# A connection for each request, which the client asks to close.
close() {
  load_options=(--close)
  fresh close 200 "${gateways[@]}"
  load_options=()
  cpu_table
}

# Responses of 1,000,000 bytes, to fewer clients at once: 64 would wait for the processors' caches instead.
large() {
  load_options=(--path /large --connections 16)
  fresh large 200 "${gateways[@]}"
  load_options=()
  cpu_table
}

# Responses of three sizes to few and to many clients. `stored` is nginx with its temporary file. 100 MB go to at most 16
# clients: 256 would not end in the time.
sizes() {
  command -v wrk >/dev/null || { missing wrk; return 0; }
  make_certificate
  local kind path count
  for kind in plain tls; do
    for path in medium large huge; do
      for count in 1 16 256; do
        if [ "$path$count" != huge256 ]; then by_wrk "$path-$count-$kind" "$kind" "/$path" "$count"; fi
      done
    done
  done
  table 'cpu_mb:CPU_µs/MB:1 all_mb:with_client_and_backend:1 mb_per_second:MB/s:0' 'nginx stored haproxy'
}

# by_wrk CASE KIND PATH CONNECTIONS: as `fresh`, with wrk. All is divided by the megabytes that it has read, since many
# responses are under way at its end.
by_wrk() {
  local at=$1 kind=$2 path=$3 count=$4 round name output proxy backend_time client scheme=http
  if [ "$kind" = tls ]; then scheme=https; fi
  for round in $(seq "$rounds"); do
    for name in $(in_turn "$round" "${gateways[@]}" ${stored:-stored}); do
      start "$name" "$kind"
      load_by_wrk 1 >/dev/null
      proxy=$(nanoseconds "$name") backend_time=$(nanoseconds backend)
      { client=$(TIMEFORMAT='%U %S'; { time load_by_wrk "$seconds" >"$work/wrk" 2>&1; } 2>&1); }
      output=$(<"$work/wrk")
      awk -v proxy=$(($(nanoseconds "$name") - proxy)) -v backend=$(($(nanoseconds backend) - backend_time)) \
        -v client="$client" '
        function megabytes(text) {
          return text * (text ~ /GB/ ? 1073.741824 : text ~ /MB/ ? 1.048576 : text ~ /KB/ ? 0.001024 : 1e-6)
        }
        / requests in / { total = $1; took = $4; read = megabytes($5) }
        /Non-2xx/ { bad += $NF }
        /Socket errors/ { gsub(",", ""); bad += $4 + $6 + $8 + $10 }
        END {
          printf "requests %d\nunanswered %d\nstatus_200 %d\n", total, bad, total - bad
          split(client, spent, " ")
          if (read) printf "cpu_mb %.3f\nall_mb %.3f\nmb_per_second %.1f\nrequests_per_second %.1f\ncpu_us %.3f\n",
            proxy / read / 1e3, (proxy + backend) / read / 1e3 + (spent[1] + spent[2]) / read * 1e6,
            read / took, total / took, proxy / (total ? total : 1) / 1e3
        }' <<<"$output" | record "$at" "$name" "$round" 200
      stop "$name"
    done
  done
}

# load_by_wrk SECONDS: for `by_wrk`.
load_by_wrk() {
  wrk -t "$((count < 2 ? 1 : 2))" -c "$count" -d "$1" --timeout 30 "$scheme://127.0.0.1:${port[$name]}$path"
}

# Messages of 100 bytes over 1,000 WebSocket connections. The backend sends each back.
websocket() {
  local backend
  find_free_port
  backend=$free
  run_server echo "$load" "127.0.0.1:$backend" --echo
  load_options=(--websocket --connections 1000)
  fresh websocket 101 "${gateways[@]}"
  load_options=()
  stop echo
  cpu_table message
}

# Over TLS: kept connections, a connection for each request, responses of 100,000 bytes.
tls() {
  command -v h2load >/dev/null || { missing h2load nghttp2-client; return 0; }
  make_certificate
  by_h2load tls-kept tls https / --h1 -n 100000 -c "$connections"
  # 400 new connections a second, a request on each; no session is resumed.
  by_h2load handshake tls https / --h1 -n 2000 -c 2000 -r 400
  by_h2load tls-100k tls https /medium --h1 -n 20000 -c 16
  table 'cpu_us:CPU_µs/request:2 requests_per_second:requests/s:0' 'nginx haproxy'
}

# HTTP/2: over TLS before a backend of HTTP/1.1, and without TLS on both sides.
http2() {
  command -v h2load >/dev/null || { missing h2load nghttp2-client; return 0; }
  make_certificate
  by_h2load tls-h2 tls-h2 https / -n 100000 -c 16 -m 8
  by_h2load h2c-both h2c-both http / -n 60000 -c 16 -m 8
  table 'cpu_us:CPU_µs/request:2 requests_per_second:requests/s:0' 'nginx haproxy'
}

# Request bodies of 16 KB, and responses of 100,000 bytes, without TLS.
payload() {
  command -v h2load >/dev/null || { missing h2load nghttp2-client; return 0; }
  head -c 16384 /dev/zero | tr '\0' x >"$work/body"
  by_h2load post-16k unlimited http / --h1 -n 50000 -c "$connections" -d "$work/body"
  by_h2load get-100k unlimited http /medium --h1 -n 20000 -c 16
  table 'cpu_us:CPU_µs/request:2 requests_per_second:requests/s:0' 'nginx haproxy'
}

# by_h2load CASE CONFIGURATION SCHEME PATH OPTION…: as `fresh`, with h2load, which speaks TLS and HTTP/2. Its requests to a
# gateway that was just started include the first ones, so there are many.
by_h2load() {
  local at=$1 configuration=$2 url=$3://127.0.0.1 path=$4 round name output began spent
  shift 4
  for round in $(seq "$rounds"); do
    for name in $(in_turn "$round" "${gateways[@]}"); do
      start "$name" "$configuration"
      spent=$(nanoseconds "$name")
      began=$(date +%s%N)
      output=$(h2load "$@" "$url:${port[$name]}$path")
      awk -v spent=$(($(nanoseconds "$name") - spent)) -v took=$(($(date +%s%N) - began)) '
        /^requests:/ { total = $2; good = $8 }
        /^status codes:/ { good = good < $3 ? good : $3 }
        END {
          printf "requests %d\nunanswered %d\nstatus_200 %d\n", total, total - good, good
          if (good) printf "cpu_us %.3f\nrequests_per_second %.3f\n", spent / good / 1e3, good / took * 1e9
        }' <<<"$output" | record "$at" "$name" "$round" 200
      stop "$name"
    done
  done
}

# nanoseconds NAME: the processor time of the server's threads so far.
nanoseconds() {
  local thread
  for thread in $(threads_of "${process[$1]}"); do cat "/proc/$thread/schedstat"; done |
    awk '{ sum += $1 } END { printf "%.0f", sum }'
}

# 5,000 new connections a second, a request on each (churn), beside 10,000 kept connections with 1,000 requests a second
# in all (kept). HAProxy counts two files for a connection, more than a process may have on many machines.
churn() {
  local name round background count=${KEPT:-10000} held=() rate=5000
  for name in "${gateways[@]}"; do [ "$name" = haproxy ] || held+=("$name"); done
  for round in $(seq "$rounds"); do
    for name in $(in_turn "$round" "${held[@]}"); do
      start "$name" churn
      "$load" "127.0.0.1:${port[$name]}" --connections "$count" --rate 1000 --warmup 2 --seconds $((seconds + 1)) \
        >"$work/traffic" &
      background=$!
      until [ "$(find "/proc/$background/fd" | wc -l)" -gt "$count" ]; do sleep 0.05; done
      load "$name" --close --rate "$rate" | record churn "$name" "$round" 200
      wait "$background"
      record kept "$name" "$round" 200 <"$work/traffic"
      stop "$name"
    done
  done
  table 'p99_us:p99_µs:0 p50_us:p50_µs:0 p99.9_us:p99.9_µs:0' nginx
}

# Memory of a kept connection that has had a request and waits for the next.
memory() {
  local kind name value count=${IDLE:-5000}
  make_certificate
  echo "Measured with $count connections:"
  echo
  echo '| KiB/connection | plain | TLS | h2c |'
  echo '|---|---:|---:|---:|'
  for name in "${gateways[@]}"; do
    printf '| %s |' "$name"
    for kind in plain tls h2c; do
      start "$name" "$kind"
      value=$(python3 benches/compare/idle.py "${process[$name]}" "${port[$name]}" "$count" "$kind")
      stop "$name"
      printf ' %s |' "$value"
      echo "  $kind $name $value KiB/connection" >&2
      echo "memory-$kind $name - $value" >>"$work/ratios"
    done
    echo
  done
}

# A credential of each kind. nginx has users and a service that decides; it computes the hash of a password each time. A
# token or a password that the gateway remembers costs a look-up. Requests without a check have the token, too: they are
# as long.
credentials() {
  make_credentials
  load_options=(--header "authorization: Bearer $token")
  fresh no-credential 200 "${gateways[@]}"
  fresh token 200 tollgate
  load_options=(--header 'x-api-key: 0123456789abcdef')
  fresh api-key 200 tollgate
  load_options=(--header "authorization: Basic $(printf 'ann:secret' | base64)")
  fresh password 200 tollgate nginx
  load_options=(--header 'cookie: session=1')
  fresh service-cached 200 tollgate
  # It answers without a body: nginx keeps no connection that has a body unread.
  fresh service 200 tollgate nginx
  load_options=()
  cpu_table
  bench credentials credentials
}

# Sets `token`, signed with HS256 by the secret in TOLLGATE_BENCH_SECRET.
make_credentials() {
  local signed
  export TOLLGATE_BENCH_SECRET=0123456789abcdef0123456789abcdef
  # The password is `secret`.
  echo 'ann:$2y$05$g6pwkuotjE05D35mxKRnKOjqb38ZVo7VfHuBt1XZdWlxnst3YquDe' >"$work/users"
  printf 'key,name,tier\n0123456789abcdef,ann,pro\n' >"$work/consumers.csv"
  base64url() { base64 -w 0 | tr -d = | tr / _ | tr + -; }
  signed=$(printf '{"alg":"HS256"}' | base64url).$(printf '{"sub":"ann","exp":4102444800}' | base64url)
  token=$signed.$(printf %s "$signed" | openssl dgst -sha256 -hmac "$TOLLGATE_BENCH_SECRET" -binary | base64url)
}

# A limit by `x-api-key` that never refuses, its store filled beforehand, and each request with one of those keys at random.
keys() {
  local name round
  for name in "${gateways[@]}"; do
    start "$name" keys
    fill "$name"
  done
  for round in $(seq "$rounds"); do
    for name in $(in_turn "$round" "${gateways[@]}"); do
      load "$name" --keys "$many" | record keys "$name" "$round" 200
    done
  done
  stop "${gateways[@]}"
  cpu_table
}

# fill NAME: one request with each key.
fill() {
  echo "  filling $1 with $many keys" >&2
  load "$1" --warmup 0 --seconds 600 --requests "$many" --first-key 0 >/dev/null
}

# A constant rate, half of nginx's maximum: open loop, each latency measured from the moment the request was due.
latency() {
  find_half_rate
  local name round
  for round in $(seq "$rounds"); do
    for name in $(in_turn "$round" "${gateways[@]}"); do
      start "$name" admitted
      load "$name" --rate "$half_rate" | record half "$name" "$round" 200
      stop "$name"
    done
  done
  echo "At $half_rate requests/s:"
  echo
  table 'p99_us:p99_µs:0 p50_us:p50_µs:0 p99.9_us:p99.9_µs:0 cpu_us:CPU_µs/request:2' 'nginx haproxy'
}

find_half_rate() {
  [ -z "$half_rate" ] || return 0
  start nginx admitted
  half_rate=$(load nginx | awk '$1 == "requests_per_second" { printf "%.0f", $2 / 2 }')
  stop nginx
}

# One client's latency, alone (idle) and beside many clients that send a byte of a head now and then (slow). These are cut
# by `header_timeout` and connect again.
slow() {
  local round name probe=2000 many_slow=${SLOW:-10000}
  start tollgate slow idle
  start tollgate slow slow
  for round in $(seq "$rounds"); do
    for name in $(in_turn "$round" idle slow); do
      if [ "$name" = slow ]; then
        "$load" "127.0.0.1:${port[slow]}" --slow "$many_slow" --seconds 600 >"$work/traffic" &
        local background=$!
        until [ -s "$work/traffic" ]; do sleep 0.1; done
        # Until the first of them have been cut.
        sleep 12
      fi
      load "$name" --rate "$probe" --connections 16 | record slow "$name" "$round" 200
      if [ "$name" = slow ]; then
        kill "$background"
        wait "$background" || true
        rm "$work/traffic"
      fi
    done
  done
  stop idle slow
  echo "The client sends $probe requests/s, alone and beside $many_slow slow clients."
  echo 'A slow client sends a byte of a head every 5 s and is cut after 10 s:'
  echo
  table 'p99_us:p99_µs:0 p50_us:p50_µs:0 p99.9_us:p99.9_µs:0 cpu_us:CPU_µs/request:2' 'idle'
}

# One client's latency beside other traffic: the others use one key (idle), or a new key for every request to a store
# that is full (flooded). Both at half of nginx's maximum rate in all.
flood() {
  find_half_rate
  local round name probe=2000 others
  others=$((half_rate > 2 * probe ? half_rate - probe : probe))
  start tollgate flood idle
  start tollgate flood flooded
  fill flooded
  for round in $(seq "$rounds"); do
    for name in $(in_turn "$round" idle flooded); do
      local traffic=(--keys 1)
      if [ "$name" = flooded ]; then traffic=(--first-key $((round * 100000000))); fi
      # It begins before the client and ends after it.
      load "$name" --rate "$others" --warmup 0 --seconds $((seconds + 3)) "${traffic[@]}" >"$work/traffic" &
      local background=$!
      sleep 0.5
      load "$name" --rate "$probe" --connections 16 --keys 1 | record flood "$name" "$round" 200
      wait "$background"
      record traffic "$name" "$round" 200 <"$work/traffic"
    done
  done
  stop idle flooded
  echo "The client sends $probe requests/s, the other traffic is $others requests/s:"
  echo
  # The results of the other traffic are checked, not shown.
  sed -i '/^traffic /d' "$work/results"
  table 'p99.9_us:p99.9_µs:0 p99_us:p99_µs:0 p50_us:p50_µs:0' idle
}

# Counters in a local Redis beside counters in memory: at a constant rate, a third of nginx's maximum; a limit that is used
# up, at saturation; then the decisions by themselves.
shared() {
  command -v redis-server >/dev/null || { missing redis-server; return 0; }
  find_half_rate
  start_redis
  local name round rate=$((half_rate * 2 / 3))
  for round in $(seq "$rounds"); do
    for name in $(in_turn "$round" tollgate redis); do
      start "$name" admitted
      load "$name" --rate "$rate" | record at-a-rate "$name" "$round" 200
      stop "$name"
    done
  done
  fresh refused 429 tollgate redis
  stop store
  echo "\`at-a-rate\`: $rate requests/s, all admitted. \`refused\`: as many as the gateway answers."
  echo
  table 'p99_us:p99_µs:0 p50_us:p50_µs:0 cpu_us:CPU_µs/request:2 requests_per_second:requests/s:0' tollgate
  bench shared shared
}

# System calls a proxied request, of all threads, from before the first connection to the last answer.
syscalls() {
  local name
  if ! find_tracer; then return 0; fi
  echo "Counted by \`$tracer\`:"
  echo
  echo '| gateway | syscalls/request | of which |'
  echo '|---|---:|---|'
  for name in "${gateways[@]}"; do
    start "$name" admitted
    load "$name" --warmup 0 --seconds 1 >/dev/null
    "count_with_$tracer" "$name" >"$work/counts"
    stop "$name"
    awk -v name="$name" -v ratios="$work/ratios" '
      $1 == "requests" { requests = $2; next }
      $1 == "total" { total = $2 / requests; next }
      $2 / requests >= 0.005 { parts = parts (parts ? ", " : "") sprintf("%s %.2f", $1, $2 / requests) }
      END {
        printf "| %s | %.2f | %s |\n", name, total, parts
        printf "syscalls %s - %.3f\n", name, total >> ratios
      }' "$work/counts"
  done
}

# Sets `tracer`. perf counts without slowing anything down. strace does slow a gateway down, so much that many
# connections are ready at each call of epoll_wait: strace therefore counts too few of these calls.
find_tracer() {
  tracer=perf
  if perf stat -e raw_syscalls:sys_enter true >/dev/null 2>&1; then return 0; fi
  tracer=strace
  command -v strace >/dev/null || { missing strace; return 1; }
}

# count_with_perf NAME: `SYSCALL COUNT` a line, with a `total`, and the `requests` that a server answered meanwhile.
count_with_perf() {
  local call events=raw_syscalls:sys_enter
  for call in read readv recvfrom write writev sendto sendmsg epoll_wait epoll_pwait epoll_pwait2 epoll_ctl getsockopt \
    clock_gettime futex accept4 io_uring_enter; do
    if perf list "syscalls:sys_enter_$call" 2>/dev/null | grep -q "enter_$call "; then events+=",syscalls:sys_enter_$call"; fi
  done
  perf stat -x ' ' -e "$events" -t "$(threads_of "${process[$1]}" | paste -sd,)" -o "$work/perf" \
    "$load" "127.0.0.1:${port[$1]}" --warmup 0 --seconds "$seconds" | grep '^requests '
  sed -nE 's/^([0-9]+) .*sys_enter(_([a-z0-9_]+))? .*/\3 \1/p' "$work/perf" | sed 's/^ /total /' | sort -k2,2nr
}

count_with_strace() {
  local threads thread pid requests=50000
  threads=$(threads_of "${process[$1]}")
  # shellcheck disable=SC2046,SC2086 # `-p` before each number
  strace -qq -c -U name,calls -S calls -o "$work/strace" $(printf -- '-p %s ' $threads) 2>"$work/strace.log" &
  pid=$!
  for thread in $threads; do
    until grep -q '^TracerPid:.*[1-9]' "/proc/$thread/status"; do
      kill -0 "$pid" 2>/dev/null || fail "strace: $(cat "$work/strace.log")"
      sleep 0.05
    done
  done
  load "$1" --warmup 0 --seconds 600 --requests "$requests" >/dev/null
  kill -INT "$pid"
  wait "$pid" || true
  echo "requests $requests"
  awk '$2 ~ /^[0-9]+$/' "$work/strace"
}

threads_of() {
  local child
  ls "/proc/$1/task"
  for child in $(cat "/proc/$1/task/"*/children); do threads_of "$child"; done
}

# Allocations a request, in the process.
allocations() { bench allocations allocations; }

# Decisions, the store, routes and keys, without a network.
inside() {
  bench decisions inside
  bench routes inside
  bench store inside
}

# Values of bodies that stream past, and lines of logs.
bodies() {
  bench measure bodies
  bench replay bodies
}

# bench NAME TABLE: the output of one benchmark. Its lines `must: FIGURE | BOUND | VALUE` go to the figures of the table.
bench() {
  echo "  cargo bench --bench $1" >&2
  cargo bench --locked --quiet --bench "$1" >"$work/bench" 2>"$work/bench.log" || fail "$(cat "$work/bench.log")"
  sed -n "s/^must: \(.*\)/\1 | $2/p" "$work/bench" >>"$work/musts"
  printf '```text output of the benchmark\n%s\n```\n' "$(sed '/^must: /d' "$work/bench")"
}
