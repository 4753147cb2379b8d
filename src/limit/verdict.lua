-- The twin of limit.rs: what all algorithms share.
--
-- Each algorithm is a module with the functions of its Rust file: `limit` makes a limit of the numbers that lua.rs hands over;
-- `decide` gives the state afterwards, verdict, wait, remaining and reset; `peek` the same without the state; `settle` the state. A
-- refusal gives back the very state that it was given. States are never changed in place.
--
-- All numbers are whole and below 2^53, so doubles hold them, and floor(a / b) and ceil(a / b) are exact. None is ever turned into text.

local EXACT = 9007199254740992 -- 2^53
local ALLOW, DELAY, DENY, NEVER = 0, 1, 2, 3

-- `count` corrected by `difference`, within 0 to 2^32 - 1.
local function changed(count, difference)
  return math.min(math.max(count + difference, 0), 4294967295)
end
