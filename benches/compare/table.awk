# Makes a Markdown table of measurements. Each line of the input is `CASE GATEWAY ROUND METRIC VALUE`, in any order.
#
#   -v columns='METRIC:TITLE:DECIMALS…'    medians over the rounds; the first column with minimum and maximum
#   -v references='GATEWAY…'               the first column's ratio to theirs in each round: median and range
#   -v ratios=FILE                         also receives those medians: `CASE GATEWAY REFERENCE RATIO` a line
#
# Needs LC_ALL=C: widths are counted in bytes.

{
  if (!(($1, $2) in seen)) { seen[$1, $2]; row_of[++rows] = $1 " " $2 }
  gateways[$2]
  value[$1, $2, $3, $4] = $5
  if ($3 > rounds) rounds = $3
}

# Sets median, least and most of the values at 1 to n of `list`.
function describe(list, n,    i, j, swap) {
  for (i = 2; i <= n; i++)
    for (j = i; j > 1 && list[j] < list[j - 1]; j--) { swap = list[j]; list[j] = list[j - 1]; list[j - 1] = swap }
  least = list[1]; most = list[n]
  median = n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}

function describe_metric(at, gateway, metric,    list, n, round) {
  for (round = 1; round <= rounds; round++)
    if ((at, gateway, round, metric) in value) list[++n] = value[at, gateway, round, metric]
  if (n) describe(list, n)
  return n
}

# A round counts for a ratio if both were measured in it.
function describe_ratio(at, gateway, reference, metric,    list, n, round) {
  for (round = 1; round <= rounds; round++)
    if ((at, gateway, round, metric) in value && value[at, reference, round, metric] > 0)
      list[++n] = value[at, gateway, round, metric] / value[at, reference, round, metric]
  if (n) describe(list, n)
  return n
}

function shown(decimals, range) {
  if (!range) return sprintf("%.*f", decimals, median)
  return sprintf("%.*f (%.*f–%.*f)", decimals, median, decimals, least, decimals, most)
}

function put(row, column, text,    visible) {
  cell[row, column] = text
  visible = text
  gsub(/[\200-\277]/, "", visible)
  missing_width[row, column] = length(visible)
  if (length(visible) > width[column]) width[column] = length(visible)
  if (column > last) last = column
}

END {
  many = split(columns, column_of, " ")
  # A reference that was not measured has no column.
  for (i = split(references, wanted, " "); i > 0; i--) if (!(wanted[i] in gateways)) wanted[i] = ""
  for (i = 1; i in wanted; i++) if (wanted[i]) reference_of[++refs] = wanted[i]
  put(0, 1, "case"); put(0, 2, "gateway")
  for (c = 1; c <= many; c++) {
    split(column_of[c], part, ":"); metric[c] = part[1]; decimals[c] = part[3]
    gsub("_", " ", part[2]); put(0, c + 2, part[2])
  }
  for (r = 1; r <= refs; r++) put(0, many + 2 + r, "to " reference_of[r])
  for (row = 1; row <= rows; row++) {
    split(row_of[row], part, " "); at = part[1]; gateway = part[2]
    put(row, 1, at); put(row, 2, gateway)
    for (c = 1; c <= many; c++) put(row, c + 2, describe_metric(at, gateway, metric[c]) ? shown(decimals[c], c == 1) : "")
    for (r = 1; r <= refs; r++) {
      n = describe_ratio(at, gateway, reference_of[r], metric[1])
      put(row, many + 2 + r, n ? (gateway == reference_of[r] ? "1" : shown(2, 1)) : "")
      if (n && ratios) printf "%s %s %s %.6f\n", at, gateway, reference_of[r], median >> ratios
    }
  }
  for (row = 0; row <= rows; row++) {
    for (c = 1; c <= last; c++) printf "| %s%*s ", cell[row, c], width[c] - missing_width[row, c], ""
    print "|"
    if (row == 0) { for (c = 1; c <= last; c++) printf "|%s", (c > 2 ? "---:" : "---"); print "|" }
  }
}
