-- The layout of a charge, as call.rs sends it: algorithm, group, cost (or difference), and five parameters of the
-- limit.
local CHARGE = '<sHdddddd'
