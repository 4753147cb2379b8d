-- Returns a module of `run`, the function above. A module runs at its first use.
local loaded = {}
function use(name)
  local module = loaded[name]
  if not module then
    module = run(name)
    loaded[name] = module
  end
  return module
end
