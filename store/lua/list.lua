-- Reads a page of the jobs in one state: todo, scheduled, doing and parked from the first to be served on, the others from the
-- latest to end on.
-- KEYS: the instance's.
-- ARGV: the state's number (scheduled 1 ... cancelled 7); how many at most; id and score of the last job of the page before, or
--   '' and ''.
-- Returns: 0; 1 if there may be more, else 0; for each job: id, score, record, run, error, progress, result. It ends when
--   it has 1 MiB. If the last job of the page before has left the state meanwhile, those of its score come again.

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
local out, bytes, i = {}, 0, 1
while i < #page and bytes < 1048576 do
  local id = page[i]
  local job = { id, page[i + 1], call('HGET', jobs, id), call('HGET', runs, id), call('HGET', errors, id),
    call('HGET', progress, id), call('HGET', results, id) }
  for k = 1, 7 do
    out[#out + 1] = job[k]
    bytes = bytes + (job[k] and #job[k] or 0)
  end
  i = i + 2
end
local more = (i < #page or #page == 2 * limit) and 1 or 0
return { 0, more, out }
