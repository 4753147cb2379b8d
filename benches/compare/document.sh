# The targets, the machine and the configurations, and the writing of all parts into docs/benchmarks.md and
# docs/benchmarks/*.md. Sourced by ../compare.sh.

# Each target with a measured value, and whether it is reached.
targets() {
  judge 'CPU of a proxied request without a limit, to nginx' 1.00 unlimited tollgate nginx
  judge 'CPU of a proxied request without a limit, to HAProxy' 0.85 unlimited tollgate haproxy
  judge 'CPU of a proxied request with a limit, to nginx' 1.00 admitted tollgate nginx
  judge 'CPU of a proxied request with a limit, to HAProxy' 0.85 admitted tollgate haproxy
  judge "the same with $many keys, to nginx" 0.95 keys tollgate nginx
  judge "the same with $many keys, to HAProxy" 0.80 keys tollgate haproxy
  judge 'CPU of a refused request, to nginx' 0.95 refused tollgate nginx
  judge 'CPU of a refused request, to HAProxy' 0.72 refused tollgate haproxy
  judge 'CPU of a request with a connection of its own, to nginx' 1.00 close tollgate nginx
  judge 'CPU of a request with a connection of its own, to HAProxy' 0.77 close tollgate haproxy
  judge 'CPU of a response of 1 MB, to nginx' 0.85 large tollgate nginx
  judge 'CPU of a response of 1 MB, to HAProxy' 0.85 large tollgate haproxy
  judge 'CPU of a WebSocket message, to nginx' 1.00 websocket tollgate nginx
  judge 'p99 of a new connection, 5000 a second beside 10000 kept, to nginx' 1.00 churn tollgate nginx
  judge 'p99 of the kept ones meanwhile, to nginx' 1.00 kept tollgate nginx
  judge 'KiB for an idle kept connection, plain' 2 memory-plain tollgate -
  judge 'KiB for an idle kept connection, TLS' 15 memory-tls tollgate -
  judge 'KiB for an idle kept connection, h2c' 16 memory-h2c tollgate -
  judge "p99 at half of nginx's maximum rate, to nginx" 1.00 half tollgate nginx
  judge 'p99.9 during a flood of new keys, to idle' 2.00 flood flooded idle
  judge 'p99 beside 10000 slow clients, to idle' 1.50 slow slow idle
  judge 'system calls of a proxied request' 4.6 syscalls tollgate -
  cat "$work/musts"
}

# judge FIGURE BOUND CASE GATEWAY REFERENCE: `FIGURE | BOUND | VALUE`, if the value was measured.
judge() {
  awk -v figure="$1" -v bound="$2" -v wanted="$3 $4 $5" '
    $1 " " $2 " " $3 == wanted { printf "%s | %s | %.2f\n", figure, bound, $4 }' "$work/ratios"
}

targets_table() {
  echo '| figure | at most | measured | reached |'
  echo '|---|---:|---:|---|'
  targets | awk -F ' [|] ' '{ printf "| %s | %s | %s | %s |\n", $1, $2, $3, $3 + 0 <= $2 + 0 ? "yes" : "**no**" }'
}

machine() {
  local name
  echo '| | |'
  echo '|---|---|'
  echo "| processor | $(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1), $(nproc) processors |"
  echo "| kernel | $(uname -s) $(uname -r | grep -o '^[0-9.]*[0-9]') |"
  echo "| compiler | $(rustc --version | cut -d' ' -f1,2) |"
  for name in tollgate nginx haproxy "${others[@]}"; do echo "| $name | $(version "$name") |"; done
  echo "| rounds | $rounds of $seconds s each, $connections connections |"
  echo "| measured | $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown) |"
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

# Puts each part that was made, `PART.md`, between `<!-- PART -->` and `<!-- /PART -->` on the page that has these marks.
write_document() {
  local part name page
  targets_table >"$work/targets.md"
  machine >"$work/machine.md"
  (configurations) >"$work/configurations.md"
  for part in "$work"/*.md; do
    name=$(basename "$part" .md)
    page=$(grep -lxF "<!-- $name -->" docs/benchmarks.md docs/benchmarks/*.md) || fail "no page has a mark for $name"
    awk -v file="$part" -v name="$name" '
      $0 == "<!-- /" name " -->" { inside = 0 }
      !inside
      $0 == "<!-- " name " -->" { inside = 1; while ((getline line < file) > 0) print line }
    ' "$page" >"$work/next"
    cp "$work/next" "$page"
  done
  echo "compare.sh: wrote docs/benchmarks.md and docs/benchmarks/*.md" >&2
}
