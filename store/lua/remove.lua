-- Removes an instance with all its jobs and entries of cron.
-- KEYS: the instance's; cron, cron_jobs, cron_ticks; for each entry its records.
-- ARGV: 1 to do so although jobs are doing or entries are registered, else 0.
-- Returns: 0; how many jobs are doing, how many entries there are; unless forced, nothing was removed if there are any; 1 if only
-- steps were removed and there are more, else 0. Those who wait, for work or for the end of a job, are told: nobody knows of them
-- afterwards.

local own = #kinds - 1 -- keys of the instance; there is no lane
for i = own + 1, #KEYS do kinds[i] = i <= own + 3 and HASH or ZSET end
local bad = foreign()
if bad then return bad end
local n, entries = call('ZCARD', doing), live[KEYS[own + 1]] and call('HLEN', KEYS[own + 1]) or 0
if (n > 0 or entries > 0) and ARGV[1] ~= '1' then return { 0, n, entries, 0 } end
if live[stepped] then -- the records of jobs' steps first, a thousand jobs at a time
  local page, ids = call('HSCAN', stepped, 0, 'COUNT', 1000), {}
  for k = 1, #page[2], 2 do
    ids[#ids + 1] = page[2][k]
    redis.pcall('UNLINK', recordsKey(page[2][k]))
  end
  drop('HDEL', stepped, ids)
  if page[1] ~= '0' then return { 0, 0, 0, 1 } end
end
local waited = call('ZRANGE', awaited, 0, 999)
for i = 1, #waited do publish(channel('ended', waited[i]), 'ended') end
wake(1000)
for i = 1, #KEYS do redis.pcall('UNLINK', KEYS[i]) end
return { 0, 0, 0, 0 }
