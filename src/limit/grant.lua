-- The counterpart of `grant` in the Rust files of the algorithms: `units` fewer in use. Returns the new state, and the
-- number of units that were given back.

local ceil, max, min = math.ceil, math.max, math.min

local function bucket(_, limit, level, units)
  local meter = use 'meter'
  local before = ceil(meter.drained(limit, level, now).ticks / limit.unit)
  return meter.settle(limit, level, now, -units, now), min(units, before)
end

local function fixed_window(algorithm, limit, state, units)
  local moment = max(now, state.start)
  local before = algorithm.settle(limit, state, moment, 0, now).count
  return algorithm.settle(limit, state, moment, -units, now), min(units, before)
end

local function sliding_window(algorithm, limit, state, units)
  local view = algorithm.view(limit, state, now)
  local before = algorithm.in_use(limit, view)
  if units >= before then return { last = 0, current = 0, previous = 0 }, before end
  if units > view.current then
    local left = limit.period - (view.last - view.start)
    view.previous = algorithm.multiply_divide(before - units, limit.period, left)
  end
  view.current = max(view.current - units, 0)
  return view, units
end

local function sliding_log(algorithm, limit, log, units)
  local _, _, before = algorithm.view(limit, log, now)
  if units >= before then
    return { last = 0, units = 0, admitted_at = 0, first = 0, count = 0, edits = {} }, before
  end
  local log, left, index = algorithm.copy(log), units, log.count
  while left > 0 do
    index = index - 1
    local at, admitted, denied = algorithm.event(log, index)
    local refused = min(denied, left)
    local passed = min(admitted, left - refused)
    log.edits[index] = { at = at, admitted = admitted - passed, denied = denied - refused }
    left = left - refused - passed
  end
  log.units = log.units - units
  log.admitted_at = algorithm.last_admitted(log)
  return log, units
end

return {
  token_bucket = bucket, gcra = bucket, leaky_bucket = bucket,
  fixed_window = fixed_window, sliding_window = sliding_window, sliding_log = sliding_log,
}
