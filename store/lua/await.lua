-- Notes that somebody waits for a job's end, for a minute.
-- KEYS: the instance's.
-- ARGV: id.
-- Returns: 0 and the state that the job is in (0: no such job).

local bad = foreign()
if bad then return bad end
local id = ARGV[1]
if not call('HGET', jobs, id) then return { 0, 0 } end
local state = whereabouts(id)
if state and state < 5 then call('ZADD', awaited, whole(clock() + 60000), id) end
return { 0, state or 0 }
