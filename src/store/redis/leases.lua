-- Units that gateways take in advance, and units that come back: of several keys, each by itself. Returns a function of
-- `was_reset_since` that returns the reply.

local lease = use 'lease'

-- After the key of a bucket: its floor.
local FLOOR = ':lease'

local function parse(argument)
  local name, _, units, a, b, c, d, e, rest = struct.unpack(CHARGE, argument)
  local algorithm = use(name)
  local limit = algorithm.limit(a, b, c, d, e, string.sub(argument, rest))
  local granted_at, period = struct.unpack('<dd', argument, #argument - 15)
  return { algorithm = algorithm, limit = limit, units = units, granted_at = granted_at, period = period }
end

return function(was_reset_since)
  local asked = {}
  for index in ipairs(KEYS) do
    asked[index] = parse(ARGV[index + 2])
    if not holds(asked[index].limit) then return { -1, now } end
  end
  local reply = { now }
  for index, key in ipairs(KEYS) do
    local ask = asked[index]
    local algorithm, limit = ask.algorithm, ask.limit
    local state, known, units, _ = load(algorithm, limit, key), nil, 0
    if lease.is_bucket(limit) then known = lease.read(redis.call('GET', key .. FLOOR)) end
    local before, low = state, known
    if ARGV[1] == 'lease' then
      state, units, low = lease.take(algorithm, limit, state, known, ask.units, ask.period, now)
      local at = 3 * index - 1
      reply[at] = units
      _, _, _, reply[at + 1], reply[at + 2] = algorithm.decide(limit, state, now, 1, true)
    elseif not was_reset_since(key, ask.granted_at) then
      state, low = lease.give_back(algorithm, limit, state, known, ask.units, ask.granted_at, ask.period, now)
    end
    if state ~= before then save(algorithm, limit, key, state) end
    if low and low ~= known then
      redis.call('SET', key .. FLOOR, lease.write(low), 'PX', math.ceil(2 * ask.period / 1000) + SLACK)
    end
  end
  return reply
end
