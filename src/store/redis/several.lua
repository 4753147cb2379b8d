-- All calls but the usual one: several charges, concurrency limits and bans, a peek, a correction, a grant, a charge by
-- hand, a reset.
-- Returns the reply.

-- After a key: when it was last reset, kept for a day. A refund of a charge from before is void.
local RESET, RESET_KEPT = ':reset', 86400000

local function was_reset_since(key, moment)
  local at = redis.call('GET', key .. RESET)
  return at and tonumber(at) >= moment
end

-- What gateways share beside counters. Where the user may not run one of its commands, the reply has only the time, and
-- decisions go on.
local BESIDE = {
  ban = 'bans', bans = 'bans', begin = 'bans', begun = 'bans',
  override = 'overrides', overrides = 'overrides',
  gateway = 'fleet', gateways = 'fleet',
  ['acme-get'] = 'acme', ['acme-put'] = 'acme', ['acme-lock'] = 'acme', ['acme-unlock'] = 'acme',
  ['usage-write'] = 'usage', ['usage-fold'] = 'usage', ['usage-index'] = 'usage', ['usage-read'] = 'usage',
}

local operation = ARGV[1]
if BESIDE[operation] then
  local ran, reply = pcall(use, BESIDE[operation])
  return ran and reply or { now }
end
if operation == 'reset' then
  for _, key in ipairs(KEYS) do redis.call('SET', key .. RESET, now, 'PX', RESET_KEPT) end
  return { now, redis.call('DEL', unpack(KEYS)) }
end
if operation == 'renew' or operation == 'release' then
  local places = use 'places'
  local change = operation == 'renew' and places.add or places.remove
  for index, key in ipairs(KEYS) do change(key, places.held_now(key), ARGV[index + 2]) end
  return { now }
end

if operation == 'lease' or operation == 'return' then return use 'leases'(was_reset_since) end

-- The use of an idempotency key, whatever it charges. Returns whether it stands for this request, from now on.
if operation == 'claim' then
  local known = redis.call('GET', KEYS[1])
  if known and known ~= ARGV[3] then return { now, 0 } end
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
  return { now, 1 }
end
-- A charge by hand may have a record, by which it is made once: the last key, and the request as the last argument.
local record, request
if operation == 'charge' and ARGV[2] ~= '0' then
  record, request = table.remove(KEYS), table.remove(ARGV)
  local known = redis.call('GET', record)
  if known then return { now, known == request and 1 or 2 } end
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
    if not holds(limit) then return { -1, now } end
    local state, changed = load(algorithm, limit, key)
    account = { algorithm = algorithm, limit = limit, state = state, changed = changed, name = name }
    accounts[key] = account
  end
  local charge = { account = account, group = group, cost = cost }
  if operation == 'settle' then
    charge.counted_at = struct.unpack('<d', argument, #argument - 7)
    if cost < 0 and was_reset_since(key, charge.counted_at) then charge.cost = 0 end
  end
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
    local state = account.algorithm.settle(account.limit, account.state, charge.counted_at, charge.cost, now)
    account.changed = account.changed or state ~= account.state
    account.state = state
  elseif operation == 'grant' then
    local grant = use 'grant'.grant[account.name]
    account.state, charge.units = grant(account.algorithm, account.limit, account.state, charge.cost)
    account.changed = true
  elseif operation == 'charge' then
    local charge_now = use 'grant'.charge[account.name]
    account.state = charge_now(account.algorithm, account.limit, account.state, charge.cost)
    account.changed = true
  elseif operation == 'used' then
    charge.units = use 'grant'.used[account.name](account.algorithm, account.limit, account.state)
    account.changed = false
  end
end

for key, account in pairs(accounts) do
  if account.changed then save(account.algorithm, account.limit, key, account.state) end
end

if operation == 'charge' then
  if record then redis.call('SET', record, request, 'PX', ARGV[2]) end
  return { now, 0 }
end

local reply = { now }
for index, charge in ipairs(all) do
  if charge.units then reply[index + 1] = charge.units end
  if charge.verdict then
    local at = 4 * index - 2
    reply[at], reply[at + 1] = charge.verdict, charge.wait
    reply[at + 2], reply[at + 3] = charge.remaining, charge.reset
  end
end
return reply
