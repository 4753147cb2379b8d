-- Keeps a state that is small: as one value, read and written as a whole.

local lifetime = use 'expiry'

local function load(twin, limit, key, now)
  local value = redis.call('GET', key)
  if not value then return twin.fresh, false end
  return twin.read(limit, value, now)
end

local function save(twin, limit, key, state, now)
  local value, forget_at = twin.write(limit, state)
  if value then
    redis.call('SET', key, value, 'PX', lifetime(forget_at, now))
  else
    redis.call('DEL', key)
  end
end

return { load = load, save = save }
