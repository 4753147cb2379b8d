-- The twin of limit.rs: what all algorithms share.
--
-- Each algorithm is a module of a few functions. `limit` makes a limit of the numbers that lua.rs hands over. `decide` gives the
-- state afterwards, verdict, wait, remaining and reset; given `peek`, it charges nothing. `settle` gives the state afterwards. A refusal
-- gives back the very state that it was given; states are never changed in place. `read` and `write` turn a state into bytes and back.
--
-- All numbers are whole and below 2^53, so doubles hold them, and floor(a / b) and ceil(a / b) are exact. None is ever turned into text.
--
-- The server makes every function anew for each call that reaches its definition, at some 0.1 µs: so they are few.

local EXACT = 9007199254740992 -- 2^53
local MAX_COUNT = 4294967295 -- 2^32 - 1
local ALLOW, DELAY, DENY, NEVER = 0, 1, 2, 3
