-- States in the server. A small state is read and written whole, in its algorithm's layout. Others have a storage of
-- their own: see log.lua and places.lua.

-- Returns a module: see main.lua.
local use

-- Whether the windows that a call names are those around the server's time. Otherwise it decides nothing.
local function holds(limit)
  return not limit.edges or limit.edges[1] <= now and now < limit.edges[4]
end

-- ms that a key is kept after its state has no effect, since clocks may differ after a failover.
local SLACK = 1000

-- The state of a key, and whether it must be saved even if the call does not change it.
local function load(algorithm, limit, key)
  if algorithm.storage then return use(algorithm.storage).load(limit, key) end
  return algorithm.read(limit, redis.call('GET', key), now)
end

local function save(algorithm, limit, key, state)
  if algorithm.storage == 'places' then return use 'places'.save(limit, key, state) end
  local value, forget_at
  if algorithm.write then
    value, forget_at = algorithm.write(limit, state)
  else
    forget_at = use 'log'.save(limit, key, state)
  end
  if not forget_at then return redis.call('DEL', key) end
  local lifetime = math.ceil(math.max(forget_at - now, 0) / 1000) + SLACK
  if value then
    redis.call('SET', key, value, 'PX', lifetime)
  else
    redis.call('PEXPIRE', key, lifetime)
  end
end
