-- The layout of a charge, as call.rs sends it: algorithm, group, cost (or difference), and five parameters of the
-- limit.
local CHARGE = '<sHdddddd'
-- Groups from here on are bans, and from there on those of shadow limits.
local BAN, SHADOW_BAN = 32768, 49152
