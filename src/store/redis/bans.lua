-- The bans of a fleet: those by hand, and those that limits began.
--
-- Those by hand are one string: a version, then a record for each ban. A record has 16 bytes for the limit, 16 bytes for
-- the key, and the end of the ban. The version is a timestamp: no version is used twice, even if the string is lost.
--
-- Those that limits began may be many: they are a sorted set with limit and key as a member, by the end of the ban. The
-- member '' has minus the version as its score. A full set drops the ban that ends first. The set tells all gateways
-- what to list and what to refuse at once; the ban itself is in the state of its key (ban.lua).

local RECORD, SUBJECT, TIMESTAMP = 40, 32, '<d'
-- The maximum number of records in a reply.
local PAGE = 1000

local key = KEYS[1]

local function version()
  local text = redis.call('GETRANGE', key, 0, 7)
  return #text == 8 and struct.unpack(TIMESTAMP, text) or 0
end

-- A page of the bans by hand, from a record on. No bans if the caller asks for the first page and has the current version.
if ARGV[1] == 'bans' then
  local current, first = version(), tonumber(ARGV[3])
  if current == tonumber(ARGV[2]) and first == 0 then return { now, current } end
  local start = 8 + first * RECORD
  local page = redis.call('GETRANGE', key, start, start + PAGE * RECORD - 1)
  local reply = { now, current }
  for at = 1, #page - RECORD + 1, RECORD do
    local ends = struct.unpack(TIMESTAMP, page, at + SUBJECT)
    for part = 0, SUBJECT - 4, 4 do
      reply[#reply + 1] = struct.unpack('<I4', page, at + part)
    end
    reply[#reply + 1] = math.max(ends - now, 0)
  end
  return reply
end

local function set_version()
  return -tonumber(redis.call('ZSCORE', key, '') or 0)
end

-- The same of the bans that limits began.
if ARGV[1] == 'begun' then
  local current, first = set_version(), tonumber(ARGV[3])
  if current == tonumber(ARGV[2]) and first == 0 then return { now, current } end
  -- The first member is the version.
  local page = redis.call('ZRANGE', key, first + 1, first + PAGE, 'WITHSCORES')
  local reply = { now, current }
  for at = 1, #page, 2 do
    for part = 0, SUBJECT - 4, 4 do
      reply[#reply + 1] = struct.unpack('<I4', page[at], part + 1)
    end
    reply[#reply + 1] = math.max(tonumber(page[at + 1]) - now, 0)
  end
  return reply
end

-- A ban that a limit began, for a span in µs; a span of 0 lifts it.
if ARGV[1] == 'begin' then
  local subject, span, max_bans = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
  local before = set_version()
  redis.call('ZREMRANGEBYSCORE', key, '(0', now)
  if span > 0 then
    redis.call('ZADD', key, now + span, subject)
  elseif redis.call('ZREM', key, subject) == 0 then
    return { now, before, before }
  end
  local after = math.max(now, before + 1)
  redis.call('ZADD', key, -after, '')
  local surplus = redis.call('ZCARD', key) - 1 - max_bans
  if surplus > 0 then redis.call('ZREMRANGEBYRANK', key, 1, surplus) end
  local last = tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2])
  redis.call('PEXPIRE', key, math.ceil(math.max(last - now, 0) / 1000) + 1000)
  return { now, before, after }
end

-- A ban by hand for a span in µs, which replaces an earlier ban of the same key; a span of 0 lifts the ban. The reply has the
-- version before and the version after; only the first if the number of bans is at its maximum.
local subject, span, max_bans = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local before, after = version(), 0
local text, kept, last = redis.call('GET', key) or '', { '' }, 0
for at = 9, #text - RECORD + 1, RECORD do
  local ends = struct.unpack(TIMESTAMP, text, at + SUBJECT)
  if ends > now and string.sub(text, at, at + SUBJECT - 1) ~= subject then
    kept[#kept + 1] = string.sub(text, at, at + RECORD - 1)
    last = math.max(last, ends)
  end
end
if span > 0 then
  if #kept > max_bans then return { now, before } end
  kept[#kept + 1] = subject .. struct.pack(TIMESTAMP, now + span)
  last = math.max(last, now + span)
end
if #kept == 1 then
  redis.call('DEL', key)
else
  after = math.max(now, before + 1)
  kept[1] = struct.pack(TIMESTAMP, after)
  redis.call('SET', key, table.concat(kept), 'PX', math.ceil((last - now) / 1000) + 1000)
end
return { now, before, after }
