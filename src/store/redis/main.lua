-- One call of the script; script.rs tells what is handed over and what comes back.

local account = use 'account'
local now = use 'clock'

-- The usual case of `decide`: one limit, so its algorithm's word is final.
local function decide_alone(charge)
  local its, state = charge.account
  state, charge.verdict, charge.wait, charge.remaining, charge.reset =
    its.twin.decide(its.limit, its.state, now, charge.cost)
  account.put(its, state)
end

local function peek(charge)
  local its = charge.account
  charge.verdict, charge.wait, charge.remaining, charge.reset =
    its.twin.peek(its.limit, its.state, now, charge.cost)
  its.changed = false
end

local function settle(charge, admitted_at)
  local its = charge.account
  account.put(its, its.twin.settle(its.limit, its.state, admitted_at, charge.cost, now))
end

-- One account per key, so that a second charge to a key sees the first.
local accounts, charges = {}, {}
for index, key in ipairs(KEYS) do
  local name, group, cost, a, b, c, d, e = struct.unpack('<sHdddddd', ARGV[index + 2])
  accounts[key] = accounts[key] or account.open(key, name, now, a, b, c, d, e)
  charges[index] = { account = accounts[key], group = group, cost = cost }
end

if ARGV[1] == 'settle' then
  for _, charge in ipairs(charges) do settle(charge, tonumber(ARGV[2])) end
elseif ARGV[1] == 'peek' then
  for _, charge in ipairs(charges) do peek(charge) end
elseif #charges == 1 then
  decide_alone(charges[1])
else
  use 'ballot'(charges, now)
end

for _, its in pairs(accounts) do account.close(its, now) end

local reply = { now }
for index, charge in ipairs(charges) do
  if charge.verdict then
    local at = 4 * index - 2
    reply[at], reply[at + 1] = charge.verdict, charge.wait
    reply[at + 2], reply[at + 3] = charge.remaining, charge.reset
  end
end
return reply
