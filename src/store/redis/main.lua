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
-- One call of the script. call.rs documents the arguments, reply.rs the reply.

if #KEYS ~= 1 or ARGV[1] ~= 'decide' then return use 'several' end

-- The usual call: one limit, so its algorithm alone decides.
local name, group, cost, a, b, c, d, e, rest = struct.unpack(CHARGE, ARGV[3])
if group >= BAN then return use 'several' end
local algorithm = use(name)
local limit = algorithm.limit(a, b, c, d, e, rest <= #ARGV[3] and string.sub(ARGV[3], rest))
if not holds(limit) then return { -1, now } end
local before, converted = load(algorithm, limit, KEYS[1])
local after, verdict, wait, remaining, reset = algorithm.decide(limit, before, now, cost)
if converted or after ~= before then save(algorithm, limit, KEYS[1], after) end
return { now, verdict, wait, remaining, reset }
