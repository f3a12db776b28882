-- Lets the lease of a job run out, as if its time had passed: the next pass of a reaper ends it, also while leases are spared after a gap.
-- KEYS: the instance's.
-- ARGV: the job.
-- Returns: 0; 1 if it was doing, else 0.

local bad = foreign()
if bad then return bad end
local worker = holderOf(ARGV[1])
if worker then
  call('ZADD', doing, 1, worker)
  call('HDEL', meta, 'grace')
end
return { 0, worker and 1 or 0 }
