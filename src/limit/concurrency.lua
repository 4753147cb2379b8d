-- The counterpart of concurrency.rs. A state is { held, stored }: `stored` is what redis/places.lua has read.

local max, min = math.max, math.min

local function limit(max_held)
  return { max = max_held }
end

local function decide(limit, state, _, cost, peek)
  local verdict = ALLOW
  if cost > limit.max then
    verdict = NEVER
  elseif state.held > limit.max - cost then
    verdict = UNKNOWN
  elseif not peek then
    state = { held = state.held + cost, stored = state.stored }
  end
  return state, verdict, 0, max(limit.max - state.held, 0), 0
end

local function settle(_, state, _, difference)
  return { held = min(max(state.held + difference, 0), MAX_COUNT), stored = state.stored }
end

return { limit = limit, decide = decide, settle = settle, storage = 'places' }
