# The tables: what is started, how it is loaded, what is shown. Sourced by ../compare.sh.

# Without a limit, and with one that never refuses.
proxied() {
  fresh unlimited 200 "${gateways[@]}" "${others[@]}"
  fresh admitted 200 "${gateways[@]}" "${headers[@]}"
  cpu_table
}

# A limit that is used up.
refused() {
  fresh refused 429 "${gateways[@]}" "${headers[@]}"
  cpu_table
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

# A constant rate, half of what nginx bears: open loop, each latency from when the request was due.
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
  echo "At $half_rate requests/s, half of what nginx bears here:"
  echo
  table 'p99_us:p99_µs:0 p50_us:p50_µs:0 p99.9_us:p99.9_µs:0 cpu_us:CPU_µs/request:2' 'nginx haproxy'
}

find_half_rate() {
  [ -z "${half_rate:-}" ] || return 0
  start nginx admitted
  half_rate=$(load nginx | awk '$1 == "requests_per_second" { printf "%.0f", $2 / 2 }')
  stop nginx
}

# One client's latency beside other traffic: the others use one key (idle), or bring a new key with every request to a store
# that is full (flooded). Both at half of what nginx bears in all.
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
  echo "A client at $probe requests/s beside other traffic at $others/s:"
  echo
  # What the other traffic saw is checked, not shown.
  sed -i '/^traffic /d' "$work/results"
  table 'p99.9_us:p99.9_µs:0 p99_us:p99_µs:0 p50_us:p50_µs:0' idle
}

# System calls a proxied request, of all threads, from before the first connection to the last answer.
syscalls() {
  command -v strace >/dev/null || { missing strace; return 0; }
  local name requests=50000
  echo '| gateway | syscalls/request | of which |'
  echo '|---|---:|---|'
  for name in "${gateways[@]}"; do
    start "$name" admitted
    load "$name" --warmup 0 --seconds 1 >/dev/null
    trace "$name" "$requests" >"$work/trace"
    stop "$name"
    awk -v name="$name" -v requests="$requests" -v ratios="$work/ratios" '
      /^-/ { inside = !inside; next }
      inside { each = $2 / requests; total += each }
      inside && each >= 0.005 { parts = parts (parts ? ", " : "") sprintf("%s %.2f", $1, each) }
      END {
        printf "| %s | %.2f | %s |\n", name, total, parts
        printf "syscalls %s - %.3f\n", name, total >> ratios
      }' "$work/trace"
  done
}

# trace NAME REQUESTS: strace's counts while a server answers so many.
trace() {
  local threads thread tracer
  threads=$(threads_of "${process[$1]}")
  # shellcheck disable=SC2046 # `-p` before each number
  strace -qq -c -U name,calls -S calls -o "$work/strace" $(printf -- '-p %s ' $threads) 2>"$work/strace.log" &
  tracer=$!
  for thread in $threads; do
    until grep -q '^TracerPid:.*[1-9]' "/proc/$thread/status"; do
      kill -0 "$tracer" 2>/dev/null || fail "strace: $(cat "$work/strace.log")"
      sleep 0.05
    done
  done
  load "$1" --warmup 0 --seconds 600 --requests "$2" >/dev/null
  kill -INT "$tracer"
  wait "$tracer" || true
  cat "$work/strace"
}

threads_of() {
  local child
  ls "/proc/$1/task"
  for child in $(cat "/proc/$1/task/"*/children); do threads_of "$child"; done
}

# Allocations a request, in the process.
allocations() { bench allocations; }

# Decisions, the store, routes and keys, without a network.
inside() {
  local name
  for name in $(sed -n '/^\[\[bench\]\]/{n;s/name = "\(.*\)"/\1/p}' Cargo.toml); do
    if [ "$name" != allocations ]; then bench "$name"; fi
  done
}

# bench NAME: what one prints. Its lines `must: WHAT | BOUND | VALUE` go to the targets.
bench() {
  echo "  cargo bench --bench $1" >&2
  cargo bench --locked --quiet --bench "$1" >"$work/bench" 2>"$work/bench.log" || fail "$(cat "$work/bench.log")"
  sed -n 's/^must: //p' "$work/bench" >>"$work/musts"
  printf '```text\n%s\n```\n' "$(sed '/^must: /d' "$work/bench")"
}
