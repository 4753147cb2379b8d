-- A charge as call.rs hands it over: algorithm, group, cost (or difference), and the five numbers of the limit.
local CHARGE = '<sHdddddd'
