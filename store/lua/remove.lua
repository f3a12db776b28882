-- Removes an instance with all its jobs and entries of cron: all of it but the records of steps at once, then these.
-- KEYS: the instance's; cron, cron_jobs, cron_ticks; for each entry its records.
-- ARGV: 1 to do so although jobs are doing, entries are registered, or there are parents or children, 0 unless so, 2 to go on with the
--   records of steps, of jobs that are gone; where to go on, 0 at first.
-- Returns: 0; how many jobs are doing; how many entries there are; how many children's outcomes are not delivered; how many children of its
--   jobs are open; how many of some 1,000 of its jobs that are children have not ended; unless forced, nothing was removed if there are any;
--   where to go on, 0 if nothing is left; 2 if all is removed but records of steps, 0 if there are more children to be looked at before.
--   Those who wait, for work or for the end of a job, are told: nobody knows of them afterwards.

local own = #kinds - 1 -- keys of the instance; there is no lane
for i = own + 1, #KEYS do kinds[i] = i <= own + 3 and HASH or ZSET end
local bad = foreign()
if bad then return bad end
local mode, cursor = ARGV[1], ARGV[2]
if mode ~= '2' then
  local n, entries = call('ZCARD', doing), live[KEYS[own + 1]] and call('HLEN', KEYS[own + 1]) or 0
  if mode == '0' then
    local owed, open = live[outbox] and call('HLEN', outbox) or 0, live[children] and call('ZCARD', children) or 0
    local kin, wait, more = {}, 0, '0'
    if live[parents] then
      local page = call('HSCAN', parents, cursor, 'COUNT', 1000)
      more = page[1]
      for k = 1, #page[2], 2 do kin[#kin + 1] = page[2][k] end
    end
    for _, set in ipairs({ scheduled, todo, parked, suspects }) do
      local places = look('ZMSCORE', set, kin)
      for k = 1, #kin do
        if places[k] then wait = wait + 1 end
      end
    end
    if n + entries + owed + open + wait > 0 or more ~= '0' then return { 0, n, entries, owed, open, wait, more, 0 } end
  end
  local waited = call('ZRANGE', awaited, 0, 999)
  for i = 1, #waited do publish(channel('ended', waited[i]), 'ended') end
  wake(1000)
  for i = 1, #KEYS do
    if KEYS[i] ~= stepped then redis.pcall('UNLINK', KEYS[i]) end
  end
  cursor = '0'
end
if not live[stepped] then return { 0, 0, 0, 0, 0, 0, '0', 2 } end
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
return { 0, 0, 0, 0, 0, 0, page[1], 2 }
