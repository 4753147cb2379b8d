-- One key's state in the course of a request: { twin, keeper, limit, key, state, changed }.

local function open(key, name, now, ...)
  local twin = use(name)
  local keeper, limit = use(twin.keeper), twin.limit(...)
  local state, changed = keeper.load(twin, limit, key, now)
  return { twin = twin, keeper = keeper, limit = limit, key = key, state = state, changed = changed }
end

local function put(account, state)
  account.changed = account.changed or state ~= account.state
  account.state = state
end

local function close(account, now)
  if account.changed then account.keeper.save(account.twin, account.limit, account.key, account.state, now) end
end

return { open = open, put = put, close = close }
