-- The counterpart of limit.rs: constants that all algorithms share.
--
-- Each algorithm is a module of a few functions. `limit` makes a limit from the parameters of lua.rs. `decide` returns
-- the new state, verdict, wait, remaining and reset; with `peek`, it charges nothing. `settle` returns the new state. A
-- refusal returns the state that it was passed; states are never changed in place. `read` parses a state from bytes,
-- `write` serializes it.
--
-- All numbers are whole and below 2^53, so doubles hold them, and floor(a / b) and ceil(a / b) are exact. No number is
-- converted to text.
--
-- The server creates every function again in each call that reaches its definition, at about 0.1 µs each: so they are
-- few.

local EXACT = 9007199254740992 -- 2^53
local MAX_COUNT = 4294967295 -- 2^32 - 1
local ALLOW, DELAY, DENY, NEVER, UNKNOWN = 0, 1, 2, 3, 4
