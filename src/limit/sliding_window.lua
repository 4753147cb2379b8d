-- The twin of sliding_window.rs. A state is { last, current, previous }, a view { at, start, current, previous }.

local floor, max = math.floor, math.max

local LAYOUT, SIZE = '<dI4I4', 16

local FRESH = { last = 0, current = 0, previous = 0 }

local function limit(period, count)
  return { period = period, count = count }
end

-- a × b ÷ c, rounded down, for a < 2^32, b and c as `multiply_divide` of the Rust file takes them. Where the product is not exact:
-- long division of a in digits of seven bits, as a remainder below c and a digit below 2^7 give sums below 2^53.
local function multiply_divide(a, b, c)
  if a * b < EXACT then return floor(a * b / c) end
  local quotient, rest = 0, 0
  for place = 4, 0, -1 do
    local digit = floor(a / 128 ^ place) % 128
    local part = rest * 128 + digit * b
    quotient = quotient * 128 + floor(part / c)
    rest = part % c
  end
  return quotient
end

local function view(limit, state, now)
  local at = max(now, state.last)
  local start = at - at % limit.period
  if state.last >= start then
    return { at = at, start = start, current = state.current, previous = state.previous }
  elseif state.last + limit.period >= start then
    return { at = at, start = start, current = 0, previous = state.current }
  end
  return { at = at, start = start, current = 0, previous = 0 }
end

local function in_use(limit, view)
  return view.current + view.previous - multiply_divide(view.previous, view.at - view.start, limit.period)
end

local function sinks(limit, previous, room)
  if previous <= room then return 0 end
  return limit.period - multiply_divide(room, limit.period, previous)
end

local function opens(limit, view, units)
  local next, room = view.start + limit.period, limit.count - units
  if room >= view.current then
    local moment = view.start + sinks(limit, view.previous, room - view.current)
    if moment < next then return moment end
  end
  return next + sinks(limit, view.current, room)
end

local function verdict(limit, view, now, cost)
  if cost > limit.count then return NEVER, 0 end
  if in_use(limit, view) <= limit.count - cost then return ALLOW, 0 end
  return DENY, max(opens(limit, view, cost) - now, 0)
end

local function report(limit, view, now)
  local remaining = max(limit.count - in_use(limit, view), 0)
  if remaining == limit.count then return remaining, 0 end
  return remaining, max(opens(limit, view, remaining + 1) - now, 0)
end

local function peek(limit, state, now, cost)
  local view = view(limit, state, now)
  local word, wait = verdict(limit, view, now, cost)
  return word, wait, report(limit, view, now)
end

local function decide(limit, state, now, cost)
  local view = view(limit, state, now)
  local word, wait = verdict(limit, view, now, cost)
  if word == ALLOW then
    view.current = view.current + cost
    state = { last = view.at, current = view.current, previous = view.previous }
  end
  return state, word, wait, report(limit, view, now)
end

local function settle(limit, state, admitted_at, difference, now)
  local view = view(limit, state, now)
  if admitted_at >= view.start then
    view.current = changed(view.current, difference)
  elseif admitted_at + limit.period >= view.start then
    view.previous = changed(view.previous, difference)
  else
    return state
  end
  if view.current == 0 and view.previous == 0 then return FRESH end
  return { last = view.at, current = view.current, previous = view.previous }
end

local function read(_, value)
  if #value ~= SIZE then return FRESH, false end
  local last, current, previous = struct.unpack(LAYOUT, value)
  return { last = last, current = current, previous = previous }, false
end

local function write(limit, state)
  if state.current == 0 and state.previous == 0 then return nil end
  local ends = state.last - state.last % limit.period + limit.period
  if state.current > 0 then ends = ends + limit.period end
  return struct.pack(LAYOUT, state.last, state.current, state.previous), ends
end

return {
  keeper = 'whole', fresh = FRESH, limit = limit, decide = decide, peek = peek, settle = settle,
  read = read, write = write,
}
