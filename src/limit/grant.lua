-- The counterpart of `grant`, `charge` and `in_use` in algorithms.rs, by algorithm.
--
-- `grant`: `units` fewer in use. Returns the new state, and the number of units that were given back. `charge`: `units`
-- more in use from now on. Returns the new state. `used`: the units in use, rounded up.

local ceil, max, min = math.ceil, math.max, math.min

local function bucket_used(_, limit, level)
  return ceil(use 'meter'.drained(limit, level, now).ticks / limit.unit)
end

local function bucket_charge(_, limit, level, units)
  return use 'meter'.settle(limit, level, now, units, now)
end

local function bucket(algorithm, limit, level, units)
  local before = bucket_used(algorithm, limit, level)
  return use 'meter'.settle(limit, level, now, -units, now), min(units, before)
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

local function fixed_window_used(algorithm, limit, state)
  return algorithm.current(limit, state, now).count
end

local function fixed_window_charge(algorithm, limit, state, units)
  return algorithm.settle(limit, state, max(now, state.start), units, now)
end

local function sliding_window_used(algorithm, limit, state)
  return algorithm.in_use(limit, algorithm.view(limit, state, now))
end

local function sliding_window_charge(algorithm, limit, state, units)
  return algorithm.settle(limit, state, max(now, state.last), units, now)
end

local function sliding_log_used(algorithm, limit, log)
  local _, _, units = algorithm.view(limit, log, now)
  return units
end

local function sliding_log_charge(algorithm, limit, log, units)
  return algorithm.settle(limit, log, max(now, log.last), units, now)
end

local function places_used(_, _, state)
  return state.held
end

return {
  grant = {
    token_bucket = bucket, gcra = bucket, leaky_bucket = bucket,
    fixed_window = fixed_window, sliding_window = sliding_window, sliding_log = sliding_log,
  },
  charge = {
    token_bucket = bucket_charge, gcra = bucket_charge, leaky_bucket = bucket_charge,
    fixed_window = fixed_window_charge, sliding_window = sliding_window_charge, sliding_log = sliding_log_charge,
  },
  used = {
    token_bucket = bucket_used, gcra = bucket_used, leaky_bucket = bucket_used,
    fixed_window = fixed_window_used, sliding_window = sliding_window_used, sliding_log = sliding_log_used,
    concurrency = places_used,
  },
}
