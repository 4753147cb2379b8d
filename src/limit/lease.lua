-- The counterpart of lease/ledger.rs: grants of units in advance, and units that come back.
--
-- A floor is { since, before, within, at, ticks, unit, drain, step }: see `LevelFloor`.

local meter = use 'meter'

local floor, huge, max, min = math.floor, math.huge, math.max, math.min

local LAYOUT, SIZE = '<dddddddd', 64

local function is_bucket(limit)
  return limit.drain ~= nil
end

-- The floor up to now, at which the bucket has this level.
local function until_now(limit, known, level, now, period)
  local fresh = { since = now, before = 0, within = huge }
  if not known or known.unit ~= limit.unit or known.drain ~= limit.drain or known.step ~= limit.step then
    return fresh
  end
  local lowest = min(meter.drained(limit, known, now).ticks, level.ticks)
  local within = min(known.within, lowest)
  if now - known.since >= period then
    fresh.before = within
    return fresh
  end
  return { since = known.since, before = known.before, within = within }
end

-- The lowest level since a moment.
local function lowest_since(known, moment)
  if moment >= known.since then return known.within end
  return min(known.within, known.before)
end

-- The floor after a grant or a return that left this level, of which so many ticks came back.
local function after(limit, known, level, ticks)
  return {
    since = known.since, before = max(known.before - ticks, 0),
    within = min(max(known.within - ticks, 0), level.ticks), at = level.at, ticks = level.ticks,
    unit = limit.unit, drain = limit.drain, step = limit.step,
  }
end

-- Returns the new state, the units taken, and the new floor.
local function take(algorithm, limit, state, known, wanted, period, now)
  local is_metered = is_bucket(limit)
  local low = is_metered and until_now(limit, known, meter.drained(limit, state, now), now, period)
  local _, _, _, remaining = algorithm.decide(limit, state, now, 1, true)
  local most = is_metered and remaining or min(max(floor(remaining / 2), 1), remaining)
  local taken = min(wanted, most)
  if taken > 0 then state = algorithm.decide(limit, state, now, taken) end
  return state, taken, low and after(limit, low, meter.drained(limit, state, now), 0)
end

-- Returns the new state and the new floor. `granted_at` is 0 if the units must stay charged.
local function give_back(algorithm, limit, state, known, units, granted_at, period, now)
  local is_late = now - granted_at > period
  if not is_bucket(limit) then
    return is_late and state or algorithm.settle(limit, state, granted_at, -units, now)
  end
  local level = meter.drained(limit, state, now)
  local low = until_now(limit, known, level, now, period)
  if is_late then return state, known end
  local ticks = min(units * limit.unit, lowest_since(low, granted_at), level.ticks)
  level.ticks = level.ticks - ticks
  return level, after(limit, low, level, ticks)
end

local function read(value)
  if not value or #value ~= SIZE then return end
  local since, before, within, at, ticks, unit, drain, step = struct.unpack(LAYOUT, value)
  return {
    since = since, before = before, within = within, at = at, ticks = ticks, unit = unit, drain = drain, step = step,
  }
end

local function write(known)
  return struct.pack(LAYOUT, known.since, known.before, known.within, known.at, known.ticks,
    known.unit, known.drain, known.step)
end

return { take = take, give_back = give_back, read = read, write = write, is_bucket = is_bucket }
