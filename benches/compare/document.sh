# The tables of docs/benchmarks.md and the writing of all parts into it and into docs/benchmarks/*.md. Sourced by
# ../compare.sh.

# The kinds of traffic, one a line: the row, the case in the results, the largest ratios that are the target (to nginx, to
# HAProxy; `-`: none), and the table of compare.sh that measures it.
traffic_kinds() {
  cat <<KINDS
CPU of a proxied request without a limit|unlimited|1.00|0.85|proxied
CPU of a proxied request with a limit|admitted|1.00|0.85|proxied
CPU of a proxied request with a limit of $many keys|keys|0.95|0.80|keys
CPU of a refused request|refused|0.95|0.72|refused
CPU of a request with a connection of its own|close|1.00|0.77|close
CPU of a request over a kept TLS connection|tls-kept|-|-|tls
CPU of a request with a TLS handshake|handshake|-|-|tls
CPU of a request over HTTP/2 with TLS|tls-h2|0.80|0.60|http2
CPU of a request over HTTP/2 without TLS, on both sides|h2c-both|0.80|0.95|http2
CPU of a POST of 16 KB|post-16k|-|-|payload
CPU of a response of 100 KB|get-100k|-|-|payload
CPU of a response of 100 KB over TLS|tls-100k|-|-|tls
CPU of a response of 1 MB|large|0.85|0.85|large
CPU of a response of 1 MB, read by wrk|large-16-plain|0.80|0.80|sizes
CPU of a WebSocket message|websocket|1.00|-|websocket
CPU of a request with a password|password|-|-|credentials
CPU of a request that a service decides about|service|-|-|credentials
KINDS
}

# A row for each kind of traffic that was measured.
traffic_rows() {
  local name at to_nginx to_haproxy table
  traffic_kinds | while IFS='|' read -r name at to_nginx to_haproxy table; do
    awk -v name="$name" -v at="$at" -v nginx="$to_nginx" -v haproxy="$to_haproxy" -v table="$table" -v date="$today" '
      $1 == at && $2 == "tollgate" { ratio[$3] = $4 }
      function shown(other, target,    text) {
        if (!(other in ratio)) return "not measured"
        text = sprintf("%.2f", ratio[other])
        return text + 0 > (target == "-" ? 1 : target + 0) ? "**" text "**" : text
      }
      END {
        if (!("nginx" in ratio) && !("haproxy" in ratio)) exit
        printf "| %s | %s | %s | %s | %s | %s | `benches/compare.sh %s` |\n", name,
          shown("nginx", nginx), nginx, shown("haproxy", haproxy), haproxy, date, table
      }' "$work/ratios"
  done
}

# Each other figure that has a target and was measured: FIGURE | BOUND | VALUE | TABLE.
figures() {
  judge 'p99 of a new connection, 5000 a second beside 10000 kept, to nginx' 1.00 churn tollgate nginx churn
  judge 'p99 of the kept ones meanwhile, to nginx' 1.00 kept tollgate nginx churn
  judge "p99 at half of nginx's maximum rate, to nginx" 1.00 half tollgate nginx latency
  judge 'p99.9 during a flood of new keys, to idle' 2.00 flood flooded idle flood
  judge 'p99 beside 10000 slow clients, to idle' 1.50 slow slow idle slow
  judge 'KiB for an idle kept connection, plain' 2 memory-plain tollgate - memory
  judge 'KiB for an idle kept connection, TLS' 15 memory-tls tollgate - memory
  judge 'KiB for an idle kept connection, h2c' 16 memory-h2c tollgate - memory
  judge 'system calls of a proxied request' 4.6 syscalls tollgate - syscalls
  cat "$work/musts"
}

# judge FIGURE BOUND CASE GATEWAY REFERENCE TABLE: its line in `figures`, if the value was measured.
judge() {
  awk -v figure="$1" -v bound="$2" -v wanted="$3 $4 $5" -v table="$6" '
    $1 " " $2 " " $3 == wanted { printf "%s | %s | %.2f | %s\n", figure, bound, $4, table }' "$work/ratios"
}

figure_rows() {
  figures | awk -F ' [|] ' -v date="$today" '{
    printf "| %s | %s | %s | %s | %s | `benches/compare.sh %s` |\n", $1, $3, $2, $3 + 0 <= $2 + 0 ? "yes" : "**no**", date, $4 }'
}

# The row of this run.
run_row() {
  local name versions=''
  for name in tollgate nginx haproxy "${others[@]}"; do versions+="$name $(version "$name"), "; done
  echo "| $today | $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1), $(nproc) processors |" \
    "$(uname -s) $(uname -r | grep -o '^[0-9.]*[0-9]'), $(rustc --version | cut -d' ' -f1,2) | ${versions%, } |" \
    "$(git rev-parse --short HEAD 2>/dev/null || echo unknown) | $rounds of $seconds s, $connections connections |"
}

version() {
  local text
  case $1 in
    tollgate) text=$("$TOLLGATE" --version) ;;
    nginx | haproxy) text=$("$1" -v 2>&1) || true ;;
    envoy) text=$(envoy --version) ;;
    *) text=$("$1" version) ;;
  esac
  grep -oE '[0-9]+\.[0-9.]*[0-9]' <<<"${text:-none}" | sed -n 1p
}

# The case `keys`, whose configurations have the most settings.
configurations() {
  local name info
  free=8080 backend=9001 work=/run
  for name in tollgate nginx haproxy; do
    info="text configuration of $name"
    if [ "$name" = tollgate ]; then info='toml with a warning'; fi
    printf '<details><summary>%s</summary>\n\n```%s\n%s\n```\n</details>\n\n' "$name" "$info" "$("${name}_config" keys | sed '/^ *$/d')"
  done
}

# The page that has the mark `<!-- NAME -->`.
page_of() { grep -lxF "<!-- $1 -->" docs/benchmarks.md docs/benchmarks/*.md || fail "no page has a mark for $1"; }

# put_rows NAME: the rows on standard input replace those of the same first cell between the marks of that name. A row that
# is new is appended, and a row that was not measured this time stays, with its date.
put_rows() {
  local page
  page=$(page_of "$1")
  cat >"$work/rows"
  awk -F ' *[|] *' -v file="$work/rows" -v name="$1" '
    BEGIN { while ((getline line < file) > 0) { split(line, cell, / *[|] */); order[++rows] = cell[2]; row[cell[2]] = line } }
    $0 == "<!-- /" name " -->" { inside = 0; for (i = 1; i <= rows; i++) if (order[i] in row) print row[order[i]] }
    inside && $2 in row { print row[$2]; delete row[$2]; next }
    { print }
    $0 == "<!-- " name " -->" { inside = 1 }
  ' "$page" >"$work/next"
  cp "$work/next" "$page"
}

# Puts each part that was made, `PART.md`, between the marks of its name, and the rows of this run into the tables of
# docs/benchmarks.md.
write_document() {
  local part name page
  (configurations) >"$work/configurations.md"
  for part in "$work"/*.md; do
    name=$(basename "$part" .md)
    page=$(page_of "$name")
    awk -v file="$part" -v name="$name" '
      $0 == "<!-- /" name " -->" { inside = 0 }
      !inside
      $0 == "<!-- " name " -->" { inside = 1; while ((getline line < file) > 0) print line }
    ' "$page" >"$work/next"
    cp "$work/next" "$page"
  done
  traffic_rows | put_rows traffic
  figure_rows | put_rows figures
  run_row | put_rows runs
  echo "compare.sh: wrote docs/benchmarks.md and docs/benchmarks/*.md" >&2
}
