-- Lets the lease of a job run out, as if its time had passed: the next pass of a reaper ends it, also while leases are spared after a gap.
-- KEYS: the instance's.
-- ARGV: the job.
-- Returns: 0; 1 if it was doing, else 0.

local bad = foreign()
if bad then return bad end
local held = live[doing] and call('ZSCORE', doing, ARGV[1])
if held then
  call('ZADD', doing, 1, ARGV[1])
  call('HDEL', meta, 'grace')
end
return { 0, held and 1 or 0 }
