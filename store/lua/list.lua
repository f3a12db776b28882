-- Reads a page of the jobs in one state: todo, scheduled, doing and parked from the first to be served on, the others from the
-- latest to end on.
-- KEYS: the instance's.
-- ARGV: the state's number (scheduled 1 ... cancelled 7); how many at most; id and score of the last job of the page before, or
--   '' and ''; how many bytes the jobs may have; 1 if the first may have more, else 0.
-- Returns: 0; 1 if there may be more, else 0; how many bytes are left; for each job: id, score, record, run, error, progress,
--   result. If the last job of the page before has left the state meanwhile, those of its score come again.

local bad = foreign()
if bad then return bad end
local set = ({ scheduled, todo, doing, parked, done, dead, cancelled })[tonumber(ARGV[1])]
local limit, last, score = tonumber(ARGV[2]), ARGV[3], ARGV[4]
local backwards = tonumber(ARGV[1]) >= 5
local from = 0
if last ~= '' then
  local rank = call(backwards and 'ZREVRANK' or 'ZRANK', set, last)
  if rank then
    from = rank + 1
  elseif backwards then
    from = call('ZCOUNT', set, '(' .. score, '+inf')
  else
    from = call('ZCOUNT', set, '-inf', '(' .. score)
  end
end
local page = call(backwards and 'ZREVRANGE' or 'ZRANGE', set, from, from + limit - 1, 'WITHSCORES')
local out, room, i, full = {}, tonumber(ARGV[5]), 1, false
while i < #page and not full do
  local id = page[i]
  local job = { id, page[i + 1], call('HGET', jobs, id), call('HGET', runs, id), call('HGET', errors, id),
    call('HGET', progress, id), call('HGET', results, id) }
  local bytes = 0
  for k = 1, 7 do bytes = bytes + (job[k] and #job[k] or 0) end
  full = bytes > room and not (i == 1 and ARGV[6] == '1')
  if not full then
    for k = 1, 7 do out[#out + 1] = job[k] end
    room = math.max(0, room - bytes)
    i = i + 2
  end
end
local more = (full or #page == 2 * limit) and 1 or 0
return { 0, more, room, out }
