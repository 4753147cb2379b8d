-- The counterpart of fixed_window.rs. A state is { start, count }.

local max, min = math.max, math.min

local LAYOUT, SIZE = '<dI4', 12

local function limit(period, count, from_first_request)
  return { period = period, count = count, from_first_request = from_first_request == 1 }
end

local function current(limit, state, now)
  if state.count > 0 and now < state.start + limit.period then return state end
  if limit.from_first_request then return { start = now, count = 0 } end
  return { start = now - now % limit.period, count = 0 }
end

local function decide(limit, state, now, cost, peek)
  local window = current(limit, state, now)
  local rest = max(window.start + limit.period - now, 0)
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
  local has_passed = admitted_at < window.start or admitted_at >= window.start + limit.period
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
  return struct.pack(LAYOUT, state.start, state.count), state.start + limit.period
end

return { limit = limit, decide = decide, settle = settle, read = read, write = write }
