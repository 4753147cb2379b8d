-- The counterpart of sliding_log.rs.
--
-- A log is { last, units, admitted_at (0: never), first, count, edits, stored }. Its events have the indices from
-- `first` up to, but not including, `count`. `edits` has the events that this call changed; `stored(index)` reads the
-- others on demand. An event that was settled to 0 units stays in the log: it does not affect the sums below.
--
-- `last` is the time of the newest event: a log is written only with a new event, and no event is removed from its end.

local floor, max, min = math.floor, math.max, math.min

local function limit(period, count, spacing, count_denied)
  return {
    horizon = max(period, spacing), count = count, spacing = spacing, count_denied = count_denied == 1,
  }
end

local function event(log, index)
  local edit = log.edits[index]
  if edit then return edit.at, edit.admitted, edit.denied end
  return log.stored(index)
end

local function copy(log)
  local edits = {}
  for index, edit in pairs(log.edits) do edits[index] = edit end
  return {
    last = log.last, units = log.units, admitted_at = log.admitted_at, first = log.first,
    count = log.count, edits = edits, stored = log.stored,
  }
end

-- The log at `now`: the time, the first event that counts, and the units that count.
local function view(limit, log, now)
  local at, first, units = max(now, log.last), log.first, log.units
  if log.last + limit.horizon <= at then return at, log.count, 0 end
  while first < log.count do
    local happened, admitted, denied = event(log, first)
    if happened + limit.horizon > at then break end
    first, units = first + 1, units - admitted - denied
  end
  return at, first, units
end

local function spaced_at(limit, log)
  if limit.spacing == 0 or log.admitted_at == 0 then return 0 end
  return log.admitted_at + limit.spacing
end

-- The first time at which `wanted` units pass, if an attempt of `own` units is logged now and no other request arrives.
local function opens(limit, log, at, first, units, own, wanted)
  local excess, moment = max(units + own + wanted - limit.count, 0), at
  for index = first, log.count - 1 do
    if excess == 0 then break end
    local happened, admitted, denied = event(log, index)
    excess = max(excess - admitted - denied, 0)
    moment = happened + limit.horizon
  end
  if excess > 0 then moment = at + limit.horizon end
  return max(moment, spaced_at(limit, log))
end

local function report(limit, log, at, first, units, now)
  local remaining, max_remaining = max(limit.count - units, 0), limit.count
  if limit.spacing > 0 then
    remaining, max_remaining = spaced_at(limit, log) > at and 0 or min(remaining, 1), 1
  end
  if remaining == max_remaining then return remaining, 0 end
  return remaining, max(opens(limit, log, at, first, units, 0, remaining + 1) - now, 0)
end

-- Keeps only the newest `max_units`. Within an event, the denied units are removed first.
local function trim(log, max_units)
  while log.units > max_units do
    local excess = log.units - max_units
    local at, admitted, denied = event(log, log.first)
    local refused = min(denied, excess)
    local passed = min(admitted, excess - refused)
    log.units = log.units - refused - passed
    log.edits[log.first] = { at = at, admitted = admitted - passed, denied = denied - refused }
    if admitted == passed and denied == refused then log.first = log.first + 1 end
  end
end

-- The log without its expired events and with a new event.
local function append(log, at, first, units, admitted, denied)
  local log, newest = copy(log), log.last == at and first < log.count
  if newest then
    local _, before, refused = event(log, log.count - 1)
    -- An event holds no more than a count does.
    local passed, denied = min(before + admitted, MAX_COUNT), min(refused + denied, MAX_COUNT)
    log.edits[log.count - 1] = { at = at, admitted = passed, denied = denied }
    units = units - before - refused + passed + denied
  else
    log.edits[log.count] = { at = at, admitted = admitted, denied = denied }
    log.count = log.count + 1
    units = units + admitted + denied
  end
  log.first, log.last, log.units = first, at, units
  if admitted > 0 then log.admitted_at = at end
  return log
end

-- The log with an attempt, which may be denied.
local function logged(limit, log, at, first, units, admitted, denied)
  local log = append(log, at, first, units, admitted, denied)
  if limit.count_denied then trim(log, max(limit.count, units)) end
  return log
end

local function decide(limit, log, now, cost, peek)
  local at, first, units = view(limit, log, now)
  local verdict, wait = ALLOW, 0
  if cost > limit.count then
    verdict = NEVER
  elseif units + cost > limit.count or spaced_at(limit, log) > at then
    local own = limit.count_denied and cost or 0
    verdict, wait = DENY, max(opens(limit, log, at, first, units, own, cost) - now, 0)
  end
  if not peek and cost > 0 and (verdict == ALLOW or verdict == DENY and limit.count_denied) then
    local admitted = verdict == ALLOW and cost or 0
    log = logged(limit, log, at, first, units, admitted, cost - admitted)
    first, units = log.first, log.units
  end
  return log, verdict, wait, report(limit, log, at, first, units, now)
end

-- The index of the first event that is not before `moment`.
local function index_at(log, moment)
  local low, high = log.first, log.count
  while low < high do
    local middle = floor((low + high) / 2)
    if event(log, middle) < moment then low = middle + 1 else high = middle end
  end
  return low
end

local function last_admitted(log)
  for index = log.count - 1, log.first, -1 do
    local at, admitted = event(log, index)
    if admitted > 0 then return at end
  end
  return 0
end

local function settle(limit, log, admitted_at, difference, now)
  local moment, first, units = view(limit, log, now)
  local index, at, admitted, denied = index_at(log, admitted_at)
  if index < log.count then at, admitted, denied = event(log, index) end
  if at ~= admitted_at or admitted + denied == 0 or index < first then
    if difference <= 0 then return log end
    return append(log, moment, first, units, min(difference, MAX_COUNT), 0)
  end
  local log, corrected = copy(log), min(max(admitted + difference, 0), MAX_COUNT)
  log.edits[index] = { at = at, admitted = corrected, denied = denied }
  log.units = log.units - admitted + corrected
  log.admitted_at = last_admitted(log)
  return log
end

return {
  limit = limit, decide = decide, settle = settle,
  view = view, event = event, copy = copy, last_admitted = last_admitted, storage = 'log',
}
