# What docs/benchmarks.md says beside the tables, and putting all of it there. Sourced by ../compare.sh.

# Each target of which something was measured: whether it holds.
targets() {
  judge 'CPU a proxied request, no limit, to nginx' 1.00 unlimited tollgate nginx
  judge 'CPU a proxied request, no limit, to HAProxy' 0.85 unlimited tollgate haproxy
  judge 'CPU a proxied request, with a limit, to nginx' 1.00 admitted tollgate nginx
  judge 'CPU a proxied request, with a limit, to HAProxy' 0.85 admitted tollgate haproxy
  judge "the same with $many keys, to nginx" 0.95 keys tollgate nginx
  judge "the same with $many keys, to HAProxy" 0.80 keys tollgate haproxy
  judge 'CPU a refused request, to nginx' 0.95 refused tollgate nginx
  judge 'CPU a refused request, to HAProxy' 0.75 refused tollgate haproxy
  judge "p99 at half of nginx's most, to nginx" 1.00 half tollgate nginx
  judge 'p99.9 while every request brings a new key, to idle' 2.00 flood flooded idle
  judge 'p99 beside 10000 slow clients, to none' 1.50 slow slow idle
  judge 'system calls a proxied request' 4.6 syscalls tollgate -
  cat "$work/musts"
}

# judge WHAT BOUND CASE GATEWAY REFERENCE: `WHAT | BOUND | VALUE`, if it was measured.
judge() {
  awk -v what="$1" -v bound="$2" -v wanted="$3 $4 $5" '
    $1 " " $2 " " $3 == wanted { printf "%s | %s | %.2f\n", what, bound, $4 }' "$work/ratios"
}

targets_table() {
  echo '| what | must be at most | measured | holds |'
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

# The case `keys`, which has the most to tell.
configurations() {
  local name info
  free=8080 backend=9001 work=/run
  for name in tollgate nginx haproxy; do
    info="text configuration of $name"
    if [ "$name" = tollgate ]; then info='toml with a warning'; fi
    printf '<details><summary>%s</summary>\n\n```%s\n%s\n```\n</details>\n\n' "$name" "$info" "$("${name}_config" keys | sed '/^ *$/d')"
  done
}

# Puts each part that was made, `PART.md`, between `<!-- PART -->` and `<!-- /PART -->`.
write_document() {
  local part document=docs/benchmarks.md
  targets_table >"$work/targets.md"
  machine >"$work/machine.md"
  (configurations) >"$work/configurations.md"
  cp "$document" "$work/document"
  for part in "$work"/*.md; do
    awk -v file="$part" -v name="$(basename "$part" .md)" '
      $0 == "<!-- /" name " -->" { inside = 0 }
      !inside
      $0 == "<!-- " name " -->" { inside = 1; while ((getline line < file) > 0) print line }
    ' "$work/document" >"$work/next"
    mv "$work/next" "$work/document"
  done
  cp "$work/document" "$document"
  echo "compare.sh: wrote $document" >&2
}
