-- Removes an instance with all its jobs and entries of cron.
-- KEYS: the instance's; cron, cron_jobs, cron_ticks; for each entry its records.
-- ARGV: 1 to do so although jobs are doing or entries are registered, else 0.
-- Returns: 0; how many jobs are doing, how many entries there are; unless forced, nothing was removed if there are any.

for i = 24, 26 do kinds[i] = HASH end
for i = 27, #KEYS do kinds[i] = ZSET end
local bad = foreign()
if bad then return bad end
local n, entries = call('ZCARD', doing), live[KEYS[24]] and call('HLEN', KEYS[24]) or 0
if (n > 0 or entries > 0) and ARGV[1] ~= '1' then return { 0, n, entries } end
for i = 1, #KEYS do redis.pcall('UNLINK', KEYS[i]) end
return { 0, 0, 0 }
