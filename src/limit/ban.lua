-- The counterpart of ban.rs. A state is { ends, bans, units, last, refusals }: `last` is the time of the newest refusal,
-- and `refusals` a string with an entry for each.

local max, min = math.max, math.min

local HEADER, HEAD = '<dddd', 32
local ENTRY, SIZE = '<dI4', 12
local FRESH = { ends = 0, bans = 0, units = 0, last = 0, refusals = '' }

-- The parameters, and the spans of successive bans as a string of doubles.
local function limit(after, within, memory, _, _, spans)
  return { after = after, within = within, memory = memory, spans = spans }
end

local function span(limit, bans)
  local index = min(bans, #limit.spans / 8 - 1)
  local value = struct.unpack('<d', limit.spans, 8 * index + 1)
  return value
end

-- The position in the string after the refusals that have expired, and the sum of the others.
local function counting(limit, state, now)
  local at, units, refusals = 1, state.units, state.refusals
  while at < #refusals do
    local moment, count = struct.unpack(ENTRY, refusals, at)
    if moment + limit.within > now then break end
    at, units = at + SIZE, units - count
  end
  return at, units
end

local function report(limit, state, now)
  if now < state.ends then return DENY, state.ends - now, 0, state.ends - now end
  local at, units = counting(limit, state, max(now, state.last))
  local reset = 0
  if at < #state.refusals then
    local oldest = struct.unpack(ENTRY, state.refusals, at)
    reset = max(oldest + limit.within - now, 0)
  end
  return ALLOW, 0, max(limit.after - units, 0), reset
end

-- Adds refusals at a time to the string; to its last entry if that is of the same time.
local function added(refusals, at, count)
  local before = #refusals - SIZE
  if before >= 0 then
    local last, others = struct.unpack(ENTRY, refusals, before + 1)
    if last == at then return string.sub(refusals, 1, before) .. struct.pack(ENTRY, at, others + count) end
  end
  return refusals .. struct.pack(ENTRY, at, count)
end

local function decide(limit, state, now, cost, peek)
  if now >= state.ends and not peek then
    local at = max(now, state.last)
    local from, units = counting(limit, state, at)
    local bans = now >= state.ends + limit.memory and 0 or state.bans
    units = units + cost
    if units >= limit.after then
      state = { ends = now + span(limit, bans), bans = min(bans + 1, MAX_COUNT), units = 0, last = 0, refusals = '' }
    else
      local refusals = added(string.sub(state.refusals, from), at, cost)
      state = { ends = state.ends, bans = bans, units = units, last = at, refusals = refusals }
    end
  end
  return state, report(limit, state, now)
end

local function settle(_, state)
  return state
end

-- As many of the newest refusals as can be without a ban: `after` may have been larger.
local function read(limit, value)
  if not value or #value < HEAD or (#value - HEAD) % SIZE ~= 0 then return FRESH, false end
  local ends, bans, units, last = struct.unpack(HEADER, value)
  local from = HEAD + 1
  while units >= limit.after and from < #value do
    local _, count = struct.unpack(ENTRY, value, from)
    from, units = from + SIZE, units - count
  end
  if from > #value then last = 0 end
  local state = { ends = ends, bans = bans, units = units, last = last, refusals = string.sub(value, from) }
  return state, from > HEAD + 1
end

local function write(limit, state)
  local counts = #state.refusals > 0 and state.last + limit.within or 0
  local forget_at = state.bans > 0 and max(counts, state.ends + limit.memory) or counts
  if forget_at == 0 then return end
  local header = struct.pack(HEADER, state.ends, state.bans, state.units, state.last)
  return header .. state.refusals, forget_at
end

return { limit = limit, decide = decide, settle = settle, read = read, write = write }
