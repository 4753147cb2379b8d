-- The counterpart of gcra.rs.

local meter = use 'meter'

local function decide(limit, state, now, cost, peek)
  local ahead = meter.drained(limit, state, now)
  local verdict, wait = ALLOW, 0
  if cost > limit.units then
    verdict = NEVER
  else
    local conforms_at = meter.falls_to(limit, ahead, limit.full - cost * limit.unit)
    if conforms_at > math.max(now, state.at) then
      verdict, wait = DENY, math.max(conforms_at - now, 0)
    elseif not peek then
      meter.charge(limit, ahead, cost)
      state = ahead
    end
  end
  return state, verdict, wait, meter.report(limit, ahead, now)
end

return {
  limit = meter.limit, decide = decide, settle = meter.settle, read = meter.read, write = meter.write,
}
