-- How long a key lives, in ms: until its state says nothing any more, and a second longer for clocks that disagree after a failover.

local SLACK = 1000

return function(forget_at, now)
  return math.ceil(math.max(forget_at - now, 0) / 1000) + SLACK
end
