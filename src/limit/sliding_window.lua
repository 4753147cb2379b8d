-- The counterpart of sliding_window.rs. A state is { last, current, previous }. A view also has the `start` of its
-- window.

local floor, max, min = math.floor, math.max, math.min

local LAYOUT, SIZE = '<dI4I4', 16

local function limit(period, count)
  return { period = period, count = count }
end

-- a × b ÷ c, rounded down, for a < 2^32. The ranges of b and c are those of `multiply_divide` in the Rust file. Where
-- the product is not exact: long division of a in digits of seven bits, since a remainder below c and a digit below 2^7
-- give sums below 2^53.
local function multiply_divide(a, b, c)
  if a * b < EXACT then return floor(a * b / c) end
  local quotient, rest = 0, 0
  for exponent = 4, 0, -1 do
    local digit = floor(a / 128 ^ exponent) % 128
    local part = rest * 128 + digit * b
    quotient = quotient * 128 + floor(part / c)
    rest = part % c
  end
  return quotient
end

-- Always a new view.
local function view(limit, state, now)
  local last, current, previous = max(now, state.last), 0, 0
  local start = last - last % limit.period
  if state.last >= start then
    current, previous = state.current, state.previous
  elseif state.last + limit.period >= start then
    previous = state.current
  end
  return { last = last, start = start, current = current, previous = previous }
end

local function in_use(limit, view)
  local previous = view.previous
  return view.current + previous - multiply_divide(previous, view.last - view.start, limit.period)
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

local function decide(limit, state, now, cost, peek)
  local view = view(limit, state, now)
  local used = in_use(limit, view)
  local verdict, wait = ALLOW, 0
  if cost > limit.count then
    verdict = NEVER
  elseif used > limit.count - cost then
    verdict, wait = DENY, max(opens(limit, view, cost) - now, 0)
  elseif not peek then
    view.current, used = view.current + cost, used + cost
    state = view
  end
  local remaining, reset = max(limit.count - used, 0), 0
  if remaining < limit.count then reset = max(opens(limit, view, remaining + 1) - now, 0) end
  return state, verdict, wait, remaining, reset
end

local function settle(limit, state, admitted_at, difference, now)
  local view = view(limit, state, now)
  if admitted_at >= view.start then
    view.current = min(max(view.current + difference, 0), MAX_COUNT)
  elseif admitted_at + limit.period >= view.start then
    view.previous = min(max(view.previous + difference, 0), MAX_COUNT)
  elseif difference > 0 then
    view.current = min(view.current + difference, MAX_COUNT)
  else
    return state
  end
  return view
end

local function read(_, value)
  if not value or #value ~= SIZE then return { last = 0, current = 0, previous = 0 }, false end
  local last, current, previous = struct.unpack(LAYOUT, value)
  return { last = last, current = current, previous = previous }, false
end

local function write(limit, state)
  if state.current == 0 and state.previous == 0 then return end
  local ends = state.last - state.last % limit.period + limit.period
  if state.current > 0 then ends = ends + limit.period end
  return struct.pack(LAYOUT, state.last, state.current, state.previous), ends
end

return {
  limit = limit, decide = decide, settle = settle, read = read, write = write,
  view = view, in_use = in_use, multiply_divide = multiply_divide,
}
