-- The counterpart of memory/transaction.rs: all charges or none. Writes each decision into its charge, and sets the
-- states of the accounts.

local function put(account, state)
  account.changed = account.changed or state ~= account.state
  account.state = state
end

-- Decides the group's charges in order. Each decision sees the state that the one before would leave.
local function evaluate(charges, group)
  local admitted = true
  for _, charge in ipairs(charges) do
    charge.account.tentative = charge.account.state
  end
  for _, charge in ipairs(charges) do
    if charge.group == group then
      local account = charge.account
      account.tentative, charge.verdict, charge.wait, charge.remaining, charge.reset =
        account.algorithm.decide(account.limit, account.tentative, now, charge.cost)
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

-- Reverts the tentative charges of the group. With `record`, a limit that also refuses on its own keeps the refused
-- attempt, if its algorithm records one.
local function rollback(charges, group, record)
  for _, charge in ipairs(charges) do
    if charge.group == group then
      local account, cost = charge.account, charge.cost
      local _, verdict, _, remaining, reset = account.algorithm.decide(account.limit, account.state, now, cost, true)
      if record and verdict >= DENY then
        local state
        state, _, _, remaining, reset = account.algorithm.decide(account.limit, account.state, now, cost)
        put(account, state)
      end
      charge.remaining, charge.reset = remaining, reset
    end
  end
end

-- Returns whether all limits of the group admit. Charges them only if they all admit and `may_charge` is true.
local function decide_group(charges, group, may_charge)
  local admitted = evaluate(charges, group)
  if admitted and may_charge then
    charge_all(charges, group)
  else
    rollback(charges, group, may_charge)
  end
  return admitted
end

-- The enforced limits (group 0) together, then each shadow limit alone, on the state that the enforced limits leave.
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
