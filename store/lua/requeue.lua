-- Makes a job that has ended todo again: attempts and crashes from zero, a new place, the end's traces removed.
-- KEYS: the instance's.
-- ARGV: id; 10 - priority.
-- Returns: 0 and the state that the job was in (0: no such job); only one that was done, dead or cancelled (5 to 7) is requeued.

local bad = foreign()
if bad then return bad end
local id = ARGV[1]
if not call('HGET', jobs, id) then return { 0, 0 } end
local state, set = whereabouts(id)
if not state or state < 5 then return { 0, state or 0 } end
local paused, now = call('HGET', meta, 'paused'), clock()
local kept = call('HGET', progress, id)
add('ZADD', todo, { whole(tonumber(ARGV[2]) * TOP + reserve(1, now)), id })
drop('ZREM', set, { id })
if kept then
  add('HSET', runs, { id, '0 0 0 0 ' .. string.rep('\0', 16) }) -- so that the next claim hands the progress over
else
  drop('HDEL', runs, { id })
end
drop('HDEL', errors, { id })
drop('HDEL', results, { id })
if not paused then wake(1) end
return { 0, state }
