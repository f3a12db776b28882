-- Cancels a job: at once unless it is doing; then its process is told and the request is kept until the job has ended.
-- KEYS: the instance's.
-- ARGV: id.
-- Returns: 0 and the state that the job was in (0: no such job).

local bad = foreign()
if bad then return bad end
local id = ARGV[1]
if not call('HGET', jobs, id) then return { 0, 0 } end
local state, set = whereabouts(id)
if not state or state >= 5 then return { 0, state or 0 } end
local now = clock()
local stamp = whole(now)
if state == 3 then
  add('ZADD', cancels, { stamp, id })
  local worker = match(call('HGET', runs, id) or '', '^%d+ %d+ %d+ %d+ (.*)$')
  local lease = worker and call('HGET', workers, worker)
  if lease and sub(lease, 1, 16) == id then
    call('PUBLISH', channel('process', sub(lease, 25)), 'cancel ' .. id)
  end
  return { 0, state }
end
add('ZADD', cancelled, { stamp, id })
drop('ZREM', set, { id })
tell({ id }, wanted({ id }, now))
return { 0, state }
