-- Removes an instance with all its jobs and entries of cron: all of it but the records of steps at once, then these.
-- KEYS: the instance's; cron, cron_jobs, cron_ticks; for each entry its records.
-- ARGV: 1 to do so although jobs are doing, outcomes are owed or entries are registered, 0 unless they are, 2 to go on with the records of
--   steps, of jobs that are gone; where to go on, 0 at first.
-- Returns: 0; how many jobs are doing, how many entries there are, how many children's outcomes are not delivered; unless forced, nothing
--   was removed if there are any; where to go on with the records of steps, 0 if none is left. Those who wait, for work or for the end of
--   a job, are told: nobody knows of them afterwards.

local own = #kinds - 1 -- keys of the instance; there is no lane
for i = own + 1, #KEYS do kinds[i] = i <= own + 3 and HASH or ZSET end
local bad = foreign()
if bad then return bad end
local mode, cursor = ARGV[1], ARGV[2]
if mode ~= '2' then
  local n, entries = call('ZCARD', doing), live[KEYS[own + 1]] and call('HLEN', KEYS[own + 1]) or 0
  local owed = live[outbox] and call('HLEN', outbox) or 0
  if mode ~= '1' and n + entries + owed > 0 then return { 0, n, entries, owed, '0' } end
  local waited = call('ZRANGE', awaited, 0, 999)
  for i = 1, #waited do publish(channel('ended', waited[i]), 'ended') end
  wake(1000)
  for i = 1, #KEYS do
    if KEYS[i] ~= stepped then redis.pcall('UNLINK', KEYS[i]) end
  end
end
if not live[stepped] then return { 0, 0, 0, 0, '0' } end
local page, ids, gone = call('HSCAN', stepped, cursor, 'COUNT', 1000), {}, {}
for k = 1, #page[2], 2 do ids[#ids + 1] = page[2][k] end
local known = mode == '2' and look('HMGET', jobs, ids) or {} -- a job that came since is another one
for k = 1, #ids do
  if not known[k] then
    gone[#gone + 1] = ids[k]
    redis.pcall('UNLINK', recordsKey(ids[k]))
  end
end
drop('HDEL', stepped, gone)
return { 0, 0, 0, 0, page[1] }
