-- All calls but the usual one: several charges, concurrency limits and bans, a peek, a correction, a grant, a reset.
-- Returns the reply.

local operation = ARGV[1]
if operation == 'ban' or operation == 'bans' or operation == 'begin' or operation == 'begun' then return use 'bans' end
if operation == 'reset' then
  return { now, redis.call('DEL', unpack(KEYS)) }
end
if operation == 'renew' or operation == 'release' then
  local places = use 'places'
  local change = operation == 'renew' and places.add or places.remove
  for index, key in ipairs(KEYS) do change(key, places.held_now(key), ARGV[index + 2]) end
  return { now }
end

-- One account per key, so that a second charge to a key sees the first.
local accounts, charges, bans = {}, {}, {}
for index, key in ipairs(KEYS) do
  local argument = ARGV[index + 2]
  local name, group, cost, a, b, c, d, e, rest = struct.unpack(CHARGE, argument)
  local account = accounts[key]
  if not account then
    local algorithm = use(name)
    local limit = algorithm.limit(a, b, c, d, e, string.sub(argument, rest))
    local state, changed = load(algorithm, limit, key)
    account = { algorithm = algorithm, limit = limit, state = state, changed = changed, name = name }
    accounts[key] = account
  end
  local charge = { account = account, group = group, cost = cost }
  if group >= BAN then bans[#bans + 1] = charge else charges[#charges + 1] = charge end
end

if operation == 'decide' then
  if #bans == 0 then
    use 'transaction'(charges)
  else
    use 'refusals'(charges, bans)
  end
end
-- Bans come after all charges.
local all = charges
for _, ban in ipairs(bans) do all[#all + 1] = ban end
for _, charge in ipairs(all) do
  local account, _ = charge.account
  if operation == 'peek' then
    _, charge.verdict, charge.wait, charge.remaining, charge.reset =
      account.algorithm.decide(account.limit, account.state, now, charge.cost, true)
    account.changed = false
  elseif operation == 'settle' then
    local state = account.algorithm.settle(account.limit, account.state, tonumber(ARGV[2]), charge.cost, now)
    account.changed = account.changed or state ~= account.state
    account.state = state
  elseif operation == 'grant' then
    local grant = use 'grant'[account.name]
    account.state, charge.granted = grant(account.algorithm, account.limit, account.state, charge.cost)
    account.changed = true
  end
end

for key, account in pairs(accounts) do
  if account.changed then save(account.algorithm, account.limit, key, account.state) end
end

local reply = { now }
for index, charge in ipairs(all) do
  if charge.granted then reply[index + 1] = charge.granted end
  if charge.verdict then
    local at = 4 * index - 2
    reply[at], reply[at + 1] = charge.verdict, charge.wait
    reply[at + 2], reply[at + 3] = charge.remaining, charge.reset
  end
end
return reply
