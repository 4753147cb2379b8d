-- The twin of meter.rs: what the token bucket, GCRA and the leaky bucket have in common.
--
-- A limit holds `unit`, `drain` and `step` of its meter, `full` (the most ticks in use) and `units` (burst or queue). A level is
-- { at, ticks }. A product that passes 2^53 is rounded here and saturates there; it only meets a `min`, or is subtracted down to zero.

local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

local MAX_TICKS = EXACT - 1
-- at and ticks, then unit, drain and step of the meter that they were counted on
local LAYOUT, SIZE = '<ddddd', 40

local FRESH = { at = 0, ticks = 0 }

local function limit(unit, drain, step, full, units)
  return { unit = unit, drain = drain, step = step, full = full, units = units }
end

local function span(limit, ticks)
  return min(ceil(ticks / limit.drain) * limit.step, EXACT)
end

local function drained(limit, level, now)
  local steps = floor(max(now - level.at, 0) / limit.step)
  local ticks = level.ticks - steps * limit.drain
  if ticks <= 0 then return { at = now, ticks = 0 } end
  return { at = level.at + steps * limit.step, ticks = ticks }
end

local function charged(limit, level, cost)
  return { at = level.at, ticks = min(level.ticks + min(cost * limit.unit, MAX_TICKS), MAX_TICKS) }
end

local function falls_to(limit, level, ticks)
  return min(level.at + span(limit, max(level.ticks - ticks, 0)), EXACT)
end

local function report(limit, level, now)
  local remaining = floor(max(limit.full - level.ticks, 0) / limit.unit)
  local taken = limit.full - remaining * limit.unit
  if taken == 0 then return remaining, 0 end
  return remaining, max(falls_to(limit, level, taken - limit.unit) - now, 0)
end

local function settle(limit, level, _, difference, now)
  local level = drained(limit, level, now)
  local change = min(math.abs(difference) * limit.unit, MAX_TICKS)
  local ticks = difference < 0 and max(level.ticks - change, 0) or min(level.ticks + change, MAX_TICKS)
  if ticks == 0 then return FRESH end
  return { at = level.at, ticks = ticks }
end

-- The units of a level on the meter `from`, rounded up to whole units where the scales differ.
local function converted(limit, from, level, now)
  level = drained(from, level, now)
  local ticks = level.ticks
  if ticks > 0 and limit.unit ~= from.unit then
    ticks = min(ceil(ticks / from.unit) * limit.unit, MAX_TICKS)
  end
  return { at = max(level.at, now), ticks = ticks }
end

-- What a value holds, and whether it was counted on another meter.
local function read(limit, value, now)
  if #value ~= SIZE then return FRESH, false end
  local at, ticks, unit, drain, step = struct.unpack(LAYOUT, value)
  local level = { at = at, ticks = ticks }
  if unit == limit.unit and drain == limit.drain and step == limit.step then return level, false end
  return converted(limit, { unit = unit, drain = drain, step = step }, level, now), true
end

-- The value of a level and from when on it says nothing; nil if it says nothing now.
local function write(limit, level)
  if level.ticks == 0 then return nil end
  local value = struct.pack(LAYOUT, level.at, level.ticks, limit.unit, limit.drain, limit.step)
  return value, falls_to(limit, level, 0)
end

return {
  FRESH = FRESH, limit = limit, span = span, drained = drained, charged = charged, falls_to = falls_to,
  report = report, settle = settle, read = read, write = write,
}
