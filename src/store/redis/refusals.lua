-- Decides charges that have bans. A ban comes after all charges. Its group says which charges are of its limit, and
-- whether that is a shadow limit.
--
-- The verdict of a ban: ALLOW if the key is not banned, DENY if it was banned before, DELAY if this call begins the ban.
-- While an enforced limit's ban is in force nothing else is decided or charged.

local function is_refused(charge)
  return charge.verdict >= DENY
end

-- Whether the limit of the ban itself refuses. Without a limit, the call reports refusals.
local function limit_refuses(charges, ban, admitted)
  local first, count = math.floor(ban.group / 64) % 64, ban.group % 64
  if count == 0 then return true end
  if ban.group >= SHADOW_BAN and not admitted then return false end
  for index = first + 1, first + count do
    if is_refused(charges[index]) then return true end
  end
  return false
end

return function(charges, bans)
  local refused = false
  for _, ban in ipairs(bans) do
    local account = ban.account
    local _
    _, ban.verdict, ban.wait, ban.remaining, ban.reset =
      account.algorithm.decide(account.limit, account.state, now, ban.cost, true)
    refused = refused or ban.group < SHADOW_BAN and is_refused(ban)
  end
  -- Without charges, the call reports refusals of several keys.
  if refused and #charges > 0 then
    for _, charge in ipairs(charges) do
      charge.verdict, charge.wait, charge.remaining, charge.reset = ALLOW, 0, 0, 0
    end
    return
  end
  use 'transaction'(charges)
  local admitted = true
  for _, charge in ipairs(charges) do
    admitted = admitted and (charge.group ~= 0 or not is_refused(charge))
  end
  for _, ban in ipairs(bans) do
    if ban.verdict == ALLOW and limit_refuses(charges, ban, admitted) then
      local account = ban.account
      account.state, ban.verdict, ban.wait, ban.remaining, ban.reset =
        account.algorithm.decide(account.limit, account.state, now, ban.cost)
      account.changed = true
      if is_refused(ban) then ban.verdict = DELAY end
    end
  end
end
