-- The counterpart of leaky_bucket.rs.

local meter = use 'meter'
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

local function joining(limit, ticks)
  if ticks > limit.full then return 0 end
  return min(floor((limit.full - ticks) / limit.unit) + 1, limit.units)
end

local function report(limit, ahead, now)
  local remaining = joining(limit, ahead.ticks)
  if remaining == joining(limit, 0) then return remaining, 0 end
  local opens = meter.falls_to(limit, ahead, limit.full - remaining * limit.unit)
  return remaining, max(opens - now, 0)
end

local function decide(limit, state, now, cost, peek)
  local ahead = meter.drained(limit, state, now)
  local verdict, wait = ALLOW, 0
  if ahead.ticks > limit.full then
    verdict, wait = DENY, max(meter.falls_to(limit, ahead, limit.full) - now, 0)
  elseif ahead.ticks > 0 then
    verdict, wait = DELAY, min(ceil(ahead.ticks / limit.drain) * limit.step, EXACT)
  end
  if verdict ~= DENY and not peek then
    meter.charge(limit, ahead, cost)
    state = ahead
  end
  return state, verdict, wait, report(limit, ahead, now)
end

return {
  limit = meter.limit, decide = decide, settle = meter.settle, read = meter.read, write = meter.write,
}
