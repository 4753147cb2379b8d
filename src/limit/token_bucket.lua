-- The counterpart of token_bucket.rs.

local meter = use 'meter'

local function decide(limit, state, now, cost, peek)
  local used, max_ticks = meter.drained(limit, state, now), limit.full - cost * limit.unit
  local verdict, wait = ALLOW, 0
  if cost > limit.units then
    verdict = NEVER
  elseif used.ticks > max_ticks then
    verdict, wait = DENY, math.max(meter.falls_to(limit, used, max_ticks) - now, 0)
  elseif not peek then
    meter.charge(limit, used, cost)
    state = used
  end
  return state, verdict, wait, meter.report(limit, used, now)
end

return {
  limit = meter.limit, decide = decide, settle = meter.settle, read = meter.read, write = meter.write,
}
