-- Runs a module when it is first asked for: a request needs few of them, and making a function costs as much as adding up a page.
local modules
local loaded = {}
local function use(name)
  local module = loaded[name]
  if not module then
    module = modules[name]()
    loaded[name] = module
  end
  return module
end
