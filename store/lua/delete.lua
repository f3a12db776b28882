-- Removes a job that nobody holds.
-- KEYS: the instance's.
-- ARGV: id.
-- Returns: 0 and the state that the job was in: 0 there is no such job, 3 it is doing and stays, -1 it was in none.

local bad = foreign()
if bad then return bad end
local id = ARGV[1]
local record = call('HGET', jobs, id)
local state, set = whereabouts(id)
if state == 3 or not (state or record) then return { 0, state or 0 } end
tell({ id }, wanted({ id }, clock()))
if set then drop('ZREM', set, { id }) end
erase({ id })
return { 0, state or -1 }
