-- Removes an entry of cron with its records, and notes for a day that it was removed.
-- KEYS: cron, cron_jobs, cron_ticks, the entry's records, the key that says it was removed.
-- ARGV: the entry's key.
-- Returns: 0; 1 if there was such an entry, else 0.

local bad = foreign({ HASH, HASH, HASH, ZSET, 'string' })
if bad then return bad end
local key, now = ARGV[1], clock()
if not live[KEYS[3]] or not call('HGET', KEYS[3], key) then return { 0, 0 } end
local changes = tonumber(call('HGET', KEYS[3], '') or 0) or 0
call('SET', KEYS[5], whole(now), 'PX', 86400000)
call('HSET', KEYS[3], '', whole(math.max(changes + 1, now)))
drop('HDEL', KEYS[1], { key })
drop('HDEL', KEYS[2], { key })
drop('HDEL', KEYS[3], { key })
if live[KEYS[4]] then call('UNLINK', KEYS[4]) end
return { 0, 1 }
