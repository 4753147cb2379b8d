-- The bans of a fleet. One string: a version, then for each ban limit and key in 16 bytes each, and until when. The version is a
-- moment, so that none comes twice, whatever becomes of the string.

local RECORD, WHO, MOMENT = 40, 32, '<d'
-- How many are told at once.
local PAGE = 1000

local key = KEYS[1]

local function version()
  local text = redis.call('GETRANGE', key, 0, 7)
  return #text == 8 and struct.unpack(MOMENT, text) or 0
end

-- What has changed since the version that is known: nothing, or a page from this record on.
if ARGV[1] == 'bans' then
  local present, first = version(), tonumber(ARGV[3])
  if present == tonumber(ARGV[2]) and first == 0 then return { now, present } end
  local start = 8 + first * RECORD
  local page = redis.call('GETRANGE', key, start, start + PAGE * RECORD - 1)
  local reply = { now, present }
  for at = 1, #page - RECORD + 1, RECORD do
    local ends = struct.unpack(MOMENT, page, at + WHO)
    for part = 0, WHO - 4, 4 do
      reply[#reply + 1] = struct.unpack('<I4', page, at + part)
    end
    reply[#reply + 1] = math.max(ends - now, 0)
  end
  return reply
end

-- A ban for so many µs, in place of another of the same key; 0 ends it. The answer is the version before and the one after; only
-- the first if there are too many.
local who, span, most = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local before, after = version(), 0
local text, kept, last = redis.call('GET', key) or '', { '' }, 0
for at = 9, #text - RECORD + 1, RECORD do
  local ends = struct.unpack(MOMENT, text, at + WHO)
  if ends > now and string.sub(text, at, at + WHO - 1) ~= who then
    kept[#kept + 1] = string.sub(text, at, at + RECORD - 1)
    last = math.max(last, ends)
  end
end
if span > 0 then
  if #kept > most then return { now, before } end
  kept[#kept + 1] = who .. struct.pack(MOMENT, now + span)
  last = math.max(last, now + span)
end
if #kept == 1 then
  redis.call('DEL', key)
else
  after = math.max(now, before + 1)
  kept[1] = struct.pack(MOMENT, after)
  redis.call('SET', key, table.concat(kept), 'PX', math.ceil((last - now) / 1000) + 1000)
end
return { now, before, after }
