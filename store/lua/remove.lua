-- Removes an instance with all its jobs.
-- KEYS: the instance's.
-- ARGV: 1 to do so although jobs are doing, else 0.
-- Returns: 0; how many jobs are doing, in which case, unless forced, nothing was removed. Those who wait, for work or for the end of
-- a job, are told: nobody knows of them afterwards.

local bad = foreign()
if bad then return bad end
local n = call('ZCARD', doing)
if n > 0 and ARGV[1] ~= '1' then return { 0, n } end
local waited = call('ZRANGE', awaited, 0, 999)
for i = 1, #waited do publish(channel('ended', waited[i]), 'ended') end
wake(1000)
for i = 1, #KEYS do redis.pcall('UNLINK', KEYS[i]) end
return { 0, 0 }
