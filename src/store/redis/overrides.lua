-- The overrides of a fleet: one string, with a version, then a record for each. A record has 16 bytes for the limit, 16 bytes
-- for the key, its end by the clock (0: none), the burst (0: none), the number of integers behind it, and for each rate the
-- count and two halves of its period. The version is as that of the bans by hand: see bans.lua.

local SUBJECT, HEAD, TIMESTAMP = 32, 48, '<d'
-- The maximum number of records in a reply.
local PAGE = 1000

local key = KEYS[1]
local text = redis.call('GET', key) or ''
local version = #text >= 8 and struct.unpack(TIMESTAMP, text) or 0

-- The records that have not ended: subject, record and end of each.
local function records()
  local found, at = {}, 9
  while at + HEAD - 1 <= #text do
    local ends, _, count = struct.unpack('<dI4I4', text, at + SUBJECT)
    local after = at + HEAD + 4 * count
    if ends == 0 or ends > now then
      found[#found + 1] = { string.sub(text, at, at + SUBJECT - 1), string.sub(text, at, after - 1), ends }
    end
    at = after
  end
  return found
end

-- A page, from a record on. No overrides if the caller asks for the first page and has the current version.
if ARGV[1] == 'overrides' then
  local first = tonumber(ARGV[3])
  if version == tonumber(ARGV[2]) and first == 0 then return { now, version } end
  local found, reply = records(), { now, version }
  for index = first + 1, math.min(first + PAGE, #found) do
    local record = found[index][2]
    for part = 1, SUBJECT, 4 do reply[#reply + 1] = struct.unpack('<I4', record, part) end
    reply[#reply + 1] = found[index][3]
    for part = SUBJECT + 9, #record, 4 do reply[#reply + 1] = struct.unpack('<I4', record, part) end
  end
  return reply
end

-- Sets the override of a subject, in place of an earlier one, to what follows it in a record; nothing takes it back. The
-- reply has the version before and the version after, the same if nothing has changed; only the first if there are too many.
local subject, set, max = ARGV[2], ARGV[3], tonumber(ARGV[4])
local kept, last, lasts, changed = { '' }, 0, false, set ~= ''
for _, one in ipairs(records()) do
  if one[1] ~= subject then
    kept[#kept + 1] = one[2]
    last, lasts = math.max(last, one[3]), lasts or one[3] == 0
  elseif set == '' or one[2] == subject .. set then
    changed = set == ''
  end
end
if not changed then return { now, version, version } end
if set ~= '' then
  if #kept > max then return { now, version } end
  local ends = struct.unpack(TIMESTAMP, set)
  kept[#kept + 1] = subject .. set
  last, lasts = math.max(last, ends), lasts or ends == 0
end
local after = math.max(now, version + 1)
if #kept == 1 then
  -- A gateway that knew some reads the version 0, and so that there are none.
  redis.call('DEL', key)
  return { now, version, 0 }
end
kept[1] = struct.pack(TIMESTAMP, after)
if lasts then
  redis.call('SET', key, table.concat(kept))
else
  redis.call('SET', key, table.concat(kept), 'PX', math.ceil((last - now) / 1000) + 1000)
end
return { now, version, after }
