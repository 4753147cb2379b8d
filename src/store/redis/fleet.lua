-- The gateways of a fleet: a sorted set with a record for each, by the time when the gateway was heard of last. The member ''
-- has minus the version as its score: the version changes when a record comes or goes. What a record has is fleet_list.rs's.

-- A gateway that is silent for so many µs is gone, and is forgotten after so many.
local GONE_AFTER, FORGOTTEN_AFTER = 15000000, 3600000000
-- The maximum number of records in a reply.
local PAGE = 100

local key = KEYS[1]
local version = -tonumber(redis.call('ZSCORE', key, '') or 0)

-- A page, from a record on, those heard of last first: of each when, the number of its words, and the words.
if ARGV[1] == 'gateways' then
  local first, reply = tonumber(ARGV[2]), { now, version }
  local page = redis.call('ZRANGE', key, first, first + PAGE - 1, 'REV', 'WITHSCORES')
  for at = 1, #page, 2 do
    local record = page[at]
    if record ~= '' then
      reply[#reply + 1], reply[#reply + 2] = tonumber(page[at + 1]), #record / 4
      for part = 1, #record - 3, 4 do reply[#reply + 1] = struct.unpack('<I4', record, part) end
    end
  end
  return reply
end

-- A gateway tells its record (nothing: it leaves), and which other records are of the past: its own former one, and those of
-- processes that it has replaced. The reply has the version, and how many gateways are gone.
local changed = redis.call('ZREMRANGEBYSCORE', key, '(0', now - FORGOTTEN_AFTER) > 0
for index = 3, #ARGV do
  if redis.call('ZREM', key, ARGV[index]) == 1 then changed = true end
end
local record = ARGV[2]
if record ~= '' and redis.call('ZADD', key, now, record) == 1 then changed = true end
-- Its units in advance, the last 8 bytes, change all the time.
local former = #ARGV == 3 and ARGV[3] or ''
local is_update = #former == #record and string.sub(former, 1, -9) == string.sub(record, 1, -9)
if changed and not is_update then
  version = math.max(now, version + 1)
  redis.call('ZADD', key, -version, '')
end
redis.call('PEXPIRE', key, FORGOTTEN_AFTER / 1000)
return { now, version, #redis.call('ZRANGEBYSCORE', key, '(0', now - GONE_AFTER) }
