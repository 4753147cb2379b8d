-- States in the server: small ones whole, as the bytes that their algorithm makes of them; logs in pieces, as log.lua has it.

-- Runs a module; use.lua says how.
local use

-- ms that a key lives on after its state says nothing, for clocks that disagree after a failover.
local SLACK = 1000

-- The state of a key, and whether it should be saved even if nothing changes it.
local function load(algorithm, limit, key)
  if not algorithm.read then return use 'log'.load(limit, key) end
  return algorithm.read(limit, redis.call('GET', key), now)
end

local function save(algorithm, limit, key, state)
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
