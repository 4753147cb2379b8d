-- The usage of consumers in a fleet. Each process writes sums of its own, so that a call can be repeated; see usage.rs.
--
-- KEYS: the index of a limit; then the rows of one window of a process; then those of the same window of all processes that
-- have ended. A row is a field of a hash: `n` and a name, `a` (no consumer) or `o` (others), with units and requests.
-- The index has a record for each process (`r` and its id): when it was heard of last, the number of its last call, and
-- whether it has ended as planned. `since` is when the first began, `version` changes when rows move, `base` is the begin of
-- the last window with rows of ended processes, and `lost` the begin of the last one that has lost such rows.

local RUN = '<ddB'
-- In µs: an ended process is forgotten after this, since a call of it may still be on its way.
local ENDED_KEPT = 60000000
-- The maximum number of rows that a call moves, and about that number of rows in a reply.
local MOVED, PAGE = 500, 200

local index, rows, base = KEYS[1], KEYS[2], KEYS[3]
local operation = ARGV[1]

local function number(field)
  return tonumber(redis.call('HGET', index, field) or 0)
end

local function sums(text)
  local units, requests = string.match(text, '^(-?%d+):(%d+)$')
  return tonumber(units or 0), tonumber(requests or 0)
end

-- The process: id, number of the call, whether it ends. Then the life of keys in ms, when the limit began to keep usage, the
-- begin of a window whose rows of ended processes are lost, and fields with values. The reply has the number of the process's
-- call before (-1: none is known, -2: this call comes too late), and `base`.
if operation == 'usage-write' then
  local run, call, ends, life = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
  local known = redis.call('HGET', index, 'r' .. run)
  local _, before, ended = struct.unpack(RUN, known or struct.pack(RUN, 0, -1, 0))
  if ended ~= 0 or before >= call then return { now, -2, 0 } end
  if rows then
    redis.call('HSET', rows, unpack(ARGV, 8))
    redis.call('PEXPIRE', rows, life)
  else
    local all = redis.call('HGETALL', index)
    for at = 1, #all, 2 do
      if string.sub(all[at], 1, 1) == 'r' then
        local last, _, gone = struct.unpack(RUN, all[at + 1])
        if last < now - (gone ~= 0 and ENDED_KEPT or life * 1000) then redis.call('HDEL', index, all[at]) end
      end
    end
  end
  redis.call('HSET', index, 'r' .. run, struct.pack(RUN, now, call, ends))
  local since = number('since')
  if since == 0 or tonumber(ARGV[6]) < since then redis.call('HSET', index, 'since', ARGV[6]) end
  if tonumber(ARGV[7]) > number('lost') then redis.call('HSET', index, 'lost', ARGV[7]) end
  redis.call('PEXPIRE', index, life)
  return { now, before, number('base') }
end

-- Moves rows of a process that has ended to those of all such processes: the life of keys, and the window's begin. The reply
-- has the number of rows that are left.
if operation == 'usage-fold' then
  local life, moved, cursor = ARGV[2], 0, '0'
  repeat
    local page = redis.call('HSCAN', rows, cursor, 'COUNT', MOVED)
    cursor = page[1]
    for at = 1, #page[2], 2 do
      local field = page[2][at]
      if redis.call('HDEL', rows, field) == 1 then
        local units, requests = sums(page[2][at + 1])
        local other_units, other_requests = sums(redis.call('HGET', base, field) or '')
        local both = string.format('%.0f:%.0f', units + other_units, requests + other_requests)
        redis.call('HSET', base, field, both)
        moved = moved + 1
      end
    end
  until cursor == '0' or moved >= MOVED
  if moved > 0 then
    redis.call('HSET', index, 'version', string.format('%.0f', number('version') + 1))
    if tonumber(ARGV[3]) > number('base') then redis.call('HSET', index, 'base', ARGV[3]) end
    redis.call('PEXPIRE', base, life)
    redis.call('PEXPIRE', index, life)
  end
  return { now, redis.call('HLEN', rows) }
end

-- The index: `since`, `version` and `lost`; then of each process the halves of its id, when it was heard of last, and whether
-- it has ended.
if operation == 'usage-index' then
  local reply, all = { now, number('since'), number('version'), number('lost') }, redis.call('HGETALL', index)
  for at = 1, #all, 2 do
    local high, low = string.match(all[at], '^r(%x%x%x%x%x%x%x%x)(%x%x%x%x%x%x%x%x)$')
    if high then
      local last, _, ended = struct.unpack(RUN, all[at + 1])
      reply[#reply + 1], reply[#reply + 2] = tonumber(high, 16), tonumber(low, 16)
      reply[#reply + 1], reply[#reply + 2] = last, ended
    end
  end
  return reply
end

-- Rows, from a cursor on: `version` and the next cursor (0: these are the last). Then of each row the length of its field, the
-- field in words of 32 bits, units and requests.
local page = redis.call('HSCAN', rows, ARGV[2], 'COUNT', PAGE)
local reply = { now, number('version'), tonumber(page[1]) }
for at = 1, #page[2], 2 do
  local field = page[2][at]
  reply[#reply + 1] = #field
  local padded = field .. string.rep('\0', -#field % 4)
  for part = 1, #padded, 4 do reply[#reply + 1] = struct.unpack('<I4', padded, part) end
  reply[#reply + 1], reply[#reply + 2] = sums(page[2][at + 1])
end
return reply
