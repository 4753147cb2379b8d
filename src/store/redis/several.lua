-- Any call but the usual one: several charges, a look, a correction, a gift, an end. Gives the reply.

if ARGV[1] == 'ban' or ARGV[1] == 'bans' then return use 'bans' end
if ARGV[1] == 'reset' then
  return { now, redis.call('DEL', unpack(KEYS)) }
end

-- One account per key, so that a second charge to a key sees the first.
local accounts, charges = {}, {}
for index, key in ipairs(KEYS) do
  local name, group, cost, a, b, c, d, e = struct.unpack(CHARGE, ARGV[index + 2])
  local its = accounts[key]
  if not its then
    local algorithm = use(name)
    local limit = algorithm.limit(a, b, c, d, e)
    local state, changed = load(algorithm, limit, key)
    its = { algorithm = algorithm, limit = limit, state = state, changed = changed, name = name }
    accounts[key] = its
  end
  charges[index] = { account = its, group = group, cost = cost }
end

if ARGV[1] == 'decide' then
  use 'transaction'(charges)
end
for _, charge in ipairs(charges) do
  local its, _ = charge.account
  if ARGV[1] == 'peek' then
    _, charge.verdict, charge.wait, charge.remaining, charge.reset =
      its.algorithm.decide(its.limit, its.state, now, charge.cost, true)
    its.changed = false
  elseif ARGV[1] == 'settle' then
    local state = its.algorithm.settle(its.limit, its.state, tonumber(ARGV[2]), charge.cost, now)
    its.changed = its.changed or state ~= its.state
    its.state = state
  elseif ARGV[1] == 'grant' then
    its.state, charge.granted = use 'grant'[its.name](its.algorithm, its.limit, its.state, charge.cost)
    its.changed = true
  end
end

for key, its in pairs(accounts) do
  if its.changed then save(its.algorithm, its.limit, key, its.state) end
end

local reply = { now }
for index, charge in ipairs(charges) do
  if charge.granted then reply[index + 1] = charge.granted end
  if charge.verdict then
    local at = 4 * index - 2
    reply[at], reply[at + 1] = charge.verdict, charge.wait
    reply[at + 2], reply[at + 3] = charge.remaining, charge.reset
  end
end
return reply
