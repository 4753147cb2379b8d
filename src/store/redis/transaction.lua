-- The twin of memory/transaction.rs: all or none. Decides every charge in place, and sets the states of the accounts.

local function put(account, state)
  account.changed = account.changed or state ~= account.state
  account.state = state
end

-- Decides the group's charges one after the other, each on what the one before would leave.
local function vote(charges, group)
  local admitted = true
  for _, charge in ipairs(charges) do
    charge.account.tentative = charge.account.state
  end
  for _, charge in ipairs(charges) do
    if charge.group == group then
      local its = charge.account
      its.tentative, charge.verdict, charge.wait, charge.remaining, charge.reset =
        its.algorithm.decide(its.limit, its.tentative, now, charge.cost)
      admitted = admitted and charge.verdict < DENY
    end
  end
  return admitted
end

local function charge_all(charges, group)
  for _, charge in ipairs(charges) do
    if charge.group == group then put(charge.account, charge.account.tentative) end
  end
end

-- Takes the group's votes back. A limit that refuses even alone keeps what its algorithm records of the attempt, if `record`.
local function hold_back(charges, group, record)
  for _, charge in ipairs(charges) do
    if charge.group == group then
      local its, cost = charge.account, charge.cost
      local _, verdict, _, remaining, reset = its.algorithm.decide(its.limit, its.state, now, cost, true)
      if record and verdict >= DENY then
        local state
        state, _, _, remaining, reset = its.algorithm.decide(its.limit, its.state, now, cost)
        put(its, state)
      end
      charge.remaining, charge.reset = remaining, reset
    end
  end
end

-- Whether all of the group say yes. They are charged only if, besides, `may_charge`.
local function decide_group(charges, group, may_charge)
  local admitted = vote(charges, group)
  if admitted and may_charge then
    charge_all(charges, group)
  else
    hold_back(charges, group, may_charge)
  end
  return admitted
end

-- The enforced limits (group 0) together, then each shadow limit alone, on what the enforced ones leave behind.
return function(charges)
  local admitted = decide_group(charges, 0, true)
  local decided = { [0] = true }
  for _, charge in ipairs(charges) do
    if not decided[charge.group] then
      decide_group(charges, charge.group, admitted)
      decided[charge.group] = true
    end
  end
end
