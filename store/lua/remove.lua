-- Removes an instance with all its jobs.
-- KEYS: the instance's.
-- ARGV: 1 to do so although jobs are doing, else 0.
-- Returns: 0; how many jobs are doing, in which case, unless forced, nothing was removed.

local bad = foreign()
if bad then return bad end
local n = call('ZCARD', doing)
if n > 0 and ARGV[1] ~= '1' then return { 0, n } end
for i = 1, #KEYS do redis.pcall('UNLINK', KEYS[i]) end
return { 0, 0 }
