-- All calls but the usual one: several charges, a peek, a correction, a grant, a reset, bans. Returns the reply.

if ARGV[1] == 'ban' or ARGV[1] == 'bans' then return use 'bans' end
if ARGV[1] == 'reset' then
  return { now, redis.call('DEL', unpack(KEYS)) }
end

-- One account per key, so that a second charge to a key sees the first.
local accounts, charges = {}, {}
for index, key in ipairs(KEYS) do
  local name, group, cost, a, b, c, d, e = struct.unpack(CHARGE, ARGV[index + 2])
  local account = accounts[key]
  if not account then
    local algorithm = use(name)
    local limit = algorithm.limit(a, b, c, d, e)
    local state, changed = load(algorithm, limit, key)
    account = { algorithm = algorithm, limit = limit, state = state, changed = changed, name = name }
    accounts[key] = account
  end
  charges[index] = { account = account, group = group, cost = cost }
end

if ARGV[1] == 'decide' then
  use 'transaction'(charges)
end
for _, charge in ipairs(charges) do
  local account, _ = charge.account
  if ARGV[1] == 'peek' then
    _, charge.verdict, charge.wait, charge.remaining, charge.reset =
      account.algorithm.decide(account.limit, account.state, now, charge.cost, true)
    account.changed = false
  elseif ARGV[1] == 'settle' then
    local state = account.algorithm.settle(account.limit, account.state, tonumber(ARGV[2]), charge.cost, now)
    account.changed = account.changed or state ~= account.state
    account.state = state
  elseif ARGV[1] == 'grant' then
    local grant = use 'grant'[account.name]
    account.state, charge.granted = grant(account.algorithm, account.limit, account.state, charge.cost)
    account.changed = true
  end
end

for key, account in pairs(accounts) do
  if account.changed then save(account.algorithm, account.limit, key, account.state) end
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
