-- A sliding log in the server: one string of a header and events of equal size, read and written in pieces.
--
-- The header: the horizon from which the key's expiry was computed, then last, units, admitted_at, first and count of
-- sliding_log.lua. An event: its time, and the units admitted and denied. The events before `first` have expired. They
-- are removed when they are more than half of the log, so a decision moves few bytes, whatever the length of the log.

local HEADER, EVENT = '<dddddd', '<dI4I4'
local HEAD, SIZE = 48, 16
-- The number of events in one read.
local PIECE = 64

local function load(limit, key)
  local text, from = redis.call('GETRANGE', key, 0, HEAD + PIECE * SIZE - 1), 0
  if #text < HEAD then
    return { last = 0, units = 0, admitted_at = 0, first = 0, count = 0, edits = {} }, false
  end
  -- The index in `text` of event 0, which may be outside of `text`.
  local origin = HEAD + 1
  local function stored(index)
    if index < from or index >= from + PIECE then
      from = index - index % PIECE
      text = redis.call('GETRANGE', key, HEAD + from * SIZE, HEAD + (from + PIECE) * SIZE - 1)
      origin = 1 - from * SIZE
    end
    return struct.unpack(EVENT, text, origin + index * SIZE)
  end
  local horizon, last, units, admitted_at, first, count = struct.unpack(HEADER, text)
  local log = {
    last = last, units = units, admitted_at = admitted_at, first = first, count = count,
    edits = {}, stored = stored,
  }
  return log, horizon ~= limit.horizon
end

-- Removes the expired events. Returns by how much the indices of the others decrease.
local function compact(key, log)
  if log.first < PIECE or 2 * log.first < log.count then return 0 end
  local rest = redis.call('GETRANGE', key, HEAD + log.first * SIZE, -1)
  redis.call('SET', key, string.rep('\0', HEAD) .. rest)
  return log.first
end

-- Writes the changes. Returns the time from which the log has no effect; nil if it has none now.
local function save(limit, key, log)
  if log.units == 0 then return end
  local moved = compact(key, log)
  local header = struct.pack(
    HEADER, limit.horizon, log.last, log.units, log.admitted_at, log.first - moved, log.count - moved
  )
  redis.call('SETRANGE', key, 0, header)
  for index, edit in pairs(log.edits) do
    if index >= log.first then
      local event = struct.pack(EVENT, edit.at, edit.admitted, edit.denied)
      redis.call('SETRANGE', key, HEAD + (index - moved) * SIZE, event)
    end
  end
  return log.last + limit.horizon
end

return { load = load, save = save }
