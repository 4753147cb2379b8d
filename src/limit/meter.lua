-- The counterpart of meter.rs: functions that the token bucket, GCRA and the leaky bucket share.
--
-- A limit holds `unit`, `drain` and `step` of its meter, `full` (the maximum of ticks in use) and `units` (burst or
-- queue). A level is { at, ticks }. A product above 2^53 is rounded here and saturates in meter.rs. The results are
-- equal: the product is only an argument of `min`, or is subtracted down to zero.

local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

local MAX_TICKS = EXACT - 1
-- at and ticks, then unit, drain and step of the meter that counted them
local LAYOUT, SIZE = '<ddddd', 40

local function limit(unit, drain, step, full, units)
  return { unit = unit, drain = drain, step = step, full = full, units = units }
end

-- Always a new level.
local function drained(limit, level, now)
  local steps = floor(max(now - level.at, 0) / limit.step)
  local ticks = level.ticks - steps * limit.drain
  if ticks <= 0 then return { at = now, ticks = 0 } end
  return { at = level.at + steps * limit.step, ticks = ticks }
end

-- Changes the level in place: the caller holds the only reference.
local function charge(limit, level, cost)
  level.ticks = min(level.ticks + min(cost * limit.unit, MAX_TICKS), MAX_TICKS)
end

local function falls_to(limit, level, ticks)
  local span = ceil(max(level.ticks - ticks, 0) / limit.drain) * limit.step
  return min(level.at + min(span, EXACT), EXACT)
end

local function report(limit, level, now)
  local remaining = floor(max(limit.full - level.ticks, 0) / limit.unit)
  local in_use = limit.full - remaining * limit.unit
  if in_use == 0 then return remaining, 0 end
  return remaining, max(falls_to(limit, level, in_use - limit.unit) - now, 0)
end

local function settle(limit, level, _, difference, now)
  local level = drained(limit, level, now)
  local change = min(math.abs(difference) * limit.unit, MAX_TICKS)
  level.ticks = difference < 0 and max(level.ticks - change, 0) or min(level.ticks + change, MAX_TICKS)
  return level
end

-- The level that a value holds, and whether it was converted from another meter.
local function read(limit, value, now)
  if not value or #value ~= SIZE then return { at = 0, ticks = 0 }, false end
  local at, ticks, unit, drain, step = struct.unpack(LAYOUT, value)
  local level = { at = at, ticks = ticks }
  if unit == limit.unit and drain == limit.drain and step == limit.step then return level, false end
  level = drained({ drain = drain, step = step }, level, now)
  level.at = max(level.at, now)
  if unit == limit.unit then return level, true end
  local units = floor(level.ticks / unit)
  -- The quotient of part * limit.unit and unit, rounded up.
  local part, quotient = level.ticks - units * unit, 0
  if part * limit.unit < EXACT then
    quotient = ceil(part * limit.unit / unit)
  else
    -- Bit by bit, since the product is not exact. Neither factor nor unit passes 2^52, so twice the rest is.
    local factor, rest, bit = limit.unit, 0, EXACT / 2
    while bit >= 1 do
      quotient, rest = quotient * 2, rest * 2
      if rest >= unit then quotient, rest = quotient + 1, rest - unit end
      if factor >= bit then
        factor, rest = factor - bit, rest + part
        if rest >= unit then quotient, rest = quotient + 1, rest - unit end
      end
      bit = bit / 2
    end
    if rest > 0 then quotient = quotient + 1 end
  end
  level.ticks = min(units * limit.unit + quotient, MAX_TICKS)
  return level, true
end

-- The value of a level, and the time from which it has no effect; nil if it has none now.
local function write(limit, level)
  if level.ticks == 0 then return end
  local value = struct.pack(LAYOUT, level.at, level.ticks, limit.unit, limit.drain, limit.step)
  return value, falls_to(limit, level, 0)
end

return {
  limit = limit, drained = drained, charge = charge, falls_to = falls_to, report = report,
  settle = settle, read = read, write = write,
}
