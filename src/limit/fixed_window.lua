-- The twin of fixed_window.rs. A state is { start, count }.

local max = math.max

local LAYOUT, SIZE = '<dI4', 12

local FRESH = { start = 0, count = 0 }

local function limit(period, count, from_first_request)
  return { period = period, count = count, from_first_request = from_first_request == 1 }
end

local function current(limit, state, now)
  if state.count > 0 and now < state.start + limit.period then return state end
  if limit.from_first_request then return { start = now, count = 0 } end
  return { start = now - now % limit.period, count = 0 }
end

local function verdict(limit, window, now, cost)
  if cost > limit.count then return NEVER, 0 end
  if window.count <= limit.count - cost then return ALLOW, 0 end
  return DENY, max(window.start + limit.period - now, 0)
end

local function report(limit, window, now)
  local reset = window.count > 0 and max(window.start + limit.period - now, 0) or 0
  return max(limit.count - window.count, 0), reset
end

local function peek(limit, state, now, cost)
  local window = current(limit, state, now)
  local word, wait = verdict(limit, window, now, cost)
  return word, wait, report(limit, window, now)
end

local function decide(limit, state, now, cost)
  local window = current(limit, state, now)
  local word, wait = verdict(limit, window, now, cost)
  if word == ALLOW then
    window = { start = window.start, count = window.count + cost }
    state = window
  end
  return state, word, wait, report(limit, window, now)
end

local function settle(limit, state, admitted_at, difference, now)
  local window = current(limit, state, now)
  if admitted_at < window.start or admitted_at >= window.start + limit.period then return state end
  local count = changed(window.count, difference)
  if count == 0 then return FRESH end
  return { start = window.start, count = count }
end

local function read(_, value)
  if #value ~= SIZE then return FRESH, false end
  local start, count = struct.unpack(LAYOUT, value)
  return { start = start, count = count }, false
end

local function write(limit, state)
  if state.count == 0 then return nil end
  return struct.pack(LAYOUT, state.start, state.count), state.start + limit.period
end

return {
  keeper = 'whole', fresh = FRESH, limit = limit, decide = decide, peek = peek, settle = settle,
  read = read, write = write,
}
