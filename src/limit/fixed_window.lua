-- The counterpart of fixed_window.rs. A state is { start, count }.

local max, min = math.max, math.min

local LAYOUT, SIZE = '<dI4', 12

-- `align` is 0 for the clock, 1 for the first request, 2 for a calendar: then `edges` is a string of doubles, the edges
-- of the windows before, at and after the gateway's time. A state of a later window than these, from before the clock was
-- set back, counts as one of `period`.
local function limit(period, count, align, _, _, edges)
  return {
    period = period, count = count, from_first_request = align == 1,
    edges = align == 2 and { struct.unpack('<dddd', edges) },
  }
end

-- The begin of the window of `now`. The server's clock may be beyond the edges.
local function start_of(limit, now)
  if limit.from_first_request then return now end
  if not limit.edges then return now - now % limit.period end
  for index = 4, 1, -1 do
    if limit.edges[index] <= now then return limit.edges[index] end
  end
  return now
end

-- The end of the window with this begin.
local function end_of(limit, start)
  if limit.edges then
    for index = 1, 4 do
      if start < limit.edges[index] then return limit.edges[index] end
    end
  end
  return start + limit.period
end

local function current(limit, state, now)
  if state.count > 0 and now < end_of(limit, state.start) then return state end
  return { start = start_of(limit, now), count = 0 }
end

local function decide(limit, state, now, cost, peek)
  local window = current(limit, state, now)
  local rest = max(end_of(limit, window.start) - now, 0)
  local verdict, wait = ALLOW, 0
  if cost > limit.count then
    verdict = NEVER
  elseif window.count > limit.count - cost then
    verdict, wait = DENY, rest
  elseif not peek then
    window = { start = window.start, count = window.count + cost }
    state = window
  end
  return state, verdict, wait, max(limit.count - window.count, 0), window.count > 0 and rest or 0
end

local function settle(limit, state, admitted_at, difference, now)
  local window = current(limit, state, now)
  local has_passed = admitted_at < window.start or admitted_at >= end_of(limit, window.start)
  if has_passed and difference < 0 then return state end
  return { start = window.start, count = min(max(window.count + difference, 0), MAX_COUNT) }
end

local function read(_, value)
  if not value or #value ~= SIZE then return { start = 0, count = 0 }, false end
  local start, count = struct.unpack(LAYOUT, value)
  return { start = start, count = count }, false
end

local function write(limit, state)
  if state.count == 0 then return end
  return struct.pack(LAYOUT, state.start, state.count), end_of(limit, state.start)
end

return { limit = limit, end_of = end_of, current = current, decide = decide, settle = settle, read = read, write = write }
