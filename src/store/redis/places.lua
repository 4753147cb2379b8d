-- The places of a key under a concurrency limit: a sorted set with a member for each request in flight, by the time at
-- which it expires. A member is the request's id and the number of its places. The member '' has minus the sum of all
-- places as its score.
--
-- A gateway renews the members of its requests, so those of a gateway that died expire.

-- Of a member without renewal, in µs.
local LIFETIME = 14000000
-- The id in a member.
local ID, PLACES = 16, '<I4'

local function places(member)
  local count = struct.unpack(PLACES, member, ID + 1)
  return count
end

local function put_sum(key, held)
  if held <= 0 then return redis.call('DEL', key) end
  redis.call('ZADD', key, -held, '')
  redis.call('PEXPIRE', key, LIFETIME / 1000)
end

-- The places held, without those that have expired.
local function held_now(key)
  local held = -tonumber(redis.call('ZSCORE', key, '') or 0)
  local expired = redis.call('ZRANGEBYSCORE', key, '(0', now)
  if #expired > 0 then
    for _, member in ipairs(expired) do held = held - places(member) end
    redis.call('ZREMRANGEBYSCORE', key, '(0', now)
    put_sum(key, held)
  end
  return held
end

local function add(key, held, member)
  -- Nothing is counted twice, whatever a gateway repeats.
  if redis.call('ZADD', key, now + LIFETIME, member) == 1 then held = held + places(member) end
  put_sum(key, held)
end

local function remove(key, held, member)
  if redis.call('ZREM', key, member) == 1 then put_sum(key, held - places(member)) end
end

local function load(_, key)
  local held = held_now(key)
  return { held = held, stored = held }, false
end

-- The last argument of the call is the id of its request.
local function save(_, key, state)
  local change = state.held - state.stored
  if change > 0 then
    add(key, state.stored, ARGV[#ARGV] .. struct.pack(PLACES, change))
  elseif change < 0 then
    remove(key, state.stored, ARGV[#ARGV] .. struct.pack(PLACES, -change))
  end
end

return { load = load, save = save, held_now = held_now, add = add, remove = remove }
