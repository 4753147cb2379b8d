-- The twin of memory/ballot.rs: all or none. Decides every charge in place and puts the states into the accounts.

local put = use 'account'.put

-- Decides the group's charges one after the other, each on what the one before would leave.
local function vote(charges, group, now)
  local admitted = true
  for _, charge in ipairs(charges) do
    charge.account.tentative = charge.account.state
  end
  for _, charge in ipairs(charges) do
    if charge.group == group then
      local account = charge.account
      account.tentative, charge.verdict, charge.wait, charge.remaining, charge.reset =
        account.twin.decide(account.limit, account.tentative, now, charge.cost)
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
local function hold_back(charges, group, record, now)
  for _, charge in ipairs(charges) do
    if charge.group == group then
      local account = charge.account
      local twin, limit = account.twin, account.limit
      local verdict, state, _
      verdict, _, charge.remaining, charge.reset = twin.peek(limit, account.state, now, charge.cost)
      if record and verdict >= DENY then
        state, _, _, charge.remaining, charge.reset = twin.decide(limit, account.state, now, charge.cost)
        put(account, state)
      end
    end
  end
end

-- Whether all of the group say yes. They are charged only if, besides, `may_charge`.
local function decide_group(charges, group, may_charge, now)
  local admitted = vote(charges, group, now)
  if admitted and may_charge then
    charge_all(charges, group)
  else
    hold_back(charges, group, may_charge, now)
  end
  return admitted
end

-- The enforced limits (group 0) together, then each shadow limit alone, on what the enforced ones leave behind.
return function(charges, now)
  local admitted = decide_group(charges, 0, true, now)
  local decided = { [0] = true }
  for _, charge in ipairs(charges) do
    if not decided[charge.group] then
      decide_group(charges, charge.group, admitted, now)
      decided[charge.group] = true
    end
  end
end
