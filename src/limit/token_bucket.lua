-- The twin of token_bucket.rs.

local meter = use 'meter'

local function verdict(limit, used, now, cost)
  if cost > limit.units then return NEVER, 0 end
  local most = limit.full - cost * limit.unit
  if used.ticks <= most then return ALLOW, 0 end
  return DENY, math.max(meter.falls_to(limit, used, most) - now, 0)
end

local function peek(limit, state, now, cost)
  local used = meter.drained(limit, state, now)
  local word, wait = verdict(limit, used, now, cost)
  return word, wait, meter.report(limit, used, now)
end

local function decide(limit, state, now, cost)
  local used = meter.drained(limit, state, now)
  local word, wait = verdict(limit, used, now, cost)
  if word == ALLOW then
    used = meter.charged(limit, used, cost)
    state = used
  end
  return state, word, wait, meter.report(limit, used, now)
end

return {
  keeper = 'whole', fresh = meter.FRESH, limit = meter.limit, decide = decide, peek = peek,
  settle = meter.settle, read = meter.read, write = meter.write,
}
