-- The modules stand above, in `run`: one is run when it is first asked for.
local loaded = {}
function use(name)
  local module = loaded[name]
  if not module then
    module = run(name)
    loaded[name] = module
  end
  return module
end
