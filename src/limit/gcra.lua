-- The twin of gcra.rs.

local meter = use 'meter'

local function verdict(limit, ahead, seen, now, cost)
  if cost > limit.units then return NEVER, 0 end
  local conforms_at = meter.falls_to(limit, ahead, limit.full - cost * limit.unit)
  if conforms_at <= seen then return ALLOW, 0 end
  return DENY, math.max(conforms_at - now, 0)
end

local function peek(limit, state, now, cost)
  local ahead = meter.drained(limit, state, now)
  local word, wait = verdict(limit, ahead, math.max(now, state.at), now, cost)
  return word, wait, meter.report(limit, ahead, now)
end

local function decide(limit, state, now, cost)
  local ahead = meter.drained(limit, state, now)
  local word, wait = verdict(limit, ahead, math.max(now, state.at), now, cost)
  if word == ALLOW then
    ahead = meter.charged(limit, ahead, cost)
    state = ahead
  end
  return state, word, wait, meter.report(limit, ahead, now)
end

return {
  keeper = 'whole', fresh = meter.FRESH, limit = meter.limit, decide = decide, peek = peek,
  settle = meter.settle, read = meter.read, write = meter.write,
}
