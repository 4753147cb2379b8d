-- The twin of leaky_bucket.rs.

local meter = use 'meter'

local function verdict(limit, ahead, now)
  if ahead.ticks == 0 then return ALLOW, 0 end
  if ahead.ticks <= limit.full then return DELAY, meter.span(limit, ahead.ticks) end
  return DENY, math.max(meter.falls_to(limit, ahead, limit.full) - now, 0)
end

local function joining(limit, ticks)
  if ticks > limit.full then return 0 end
  return math.min(math.floor((limit.full - ticks) / limit.unit) + 1, limit.units)
end

local function report(limit, ahead, now)
  local remaining = joining(limit, ahead.ticks)
  if remaining == joining(limit, 0) then return remaining, 0 end
  local opens = meter.falls_to(limit, ahead, limit.full - remaining * limit.unit)
  return remaining, math.max(opens - now, 0)
end

local function peek(limit, state, now)
  local ahead = meter.drained(limit, state, now)
  local word, wait = verdict(limit, ahead, now)
  return word, wait, report(limit, ahead, now)
end

local function decide(limit, state, now, cost)
  local ahead = meter.drained(limit, state, now)
  local word, wait = verdict(limit, ahead, now)
  if word ~= DENY then
    ahead = meter.charged(limit, ahead, cost)
    state = ahead
  end
  return state, word, wait, report(limit, ahead, now)
end

return {
  keeper = 'whole', fresh = meter.FRESH, limit = meter.limit, decide = decide, peek = peek,
  settle = meter.settle, read = meter.read, write = meter.write,
}
