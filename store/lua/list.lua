-- Reads a page of the jobs in one set: todo, scheduled, doing and parked from the first to be served on, the others from the latest
-- to end on.
-- KEYS: the instance's.
-- ARGV: the set's number (scheduled 1 ... cancelled 7, suspected todo 8); how many at most; id and score of the last job looked at
--   for the page before, or '' and ''; only jobs that have been in the set for so many ms (-1: any); a text that the last
--   error has to contain, or ''.
-- Returns: 0; 1 if there may be more, else 0; id and score of the last job looked at; for each job: id, score, record, run, error,
--   progress, result. It ends before it has more than 1 MiB, but has at least one job. If the last job of the page before has
--   left the set meanwhile, those of its score come again.

local bad = foreign()
if bad then return bad end
local set = sets[tonumber(ARGV[1])]
local limit, last, score = tonumber(ARGV[2]), ARGV[3], ARGV[4]
local backwards = tonumber(ARGV[1]) >= 5 and tonumber(ARGV[1]) <= 7
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
local age, text = tonumber(ARGV[5]), ARGV[6]
local now, ask = clock(), (age >= 0 or text ~= '') and 500 or limit
local page = call(backwards and 'ZREVRANGE' or 'ZRANGE', set, from, from + ask - 1, 'WITHSCORES')
local out, bytes, given, more = {}, 0, 0, #page == 2 * ask and 1 or 0
for i = 1, #page, 2 do
  local id, at = page[i], page[i + 1]
  local why = call('HGET', errors, id)
  if (age < 0 or now - since(set, at) >= age) and (text == '' or (why and string.find(why, text, 1, true))) then
    local job = { id, at, call('HGET', jobs, id), call('HGET', runs, id), why, call('HGET', progress, id), call('HGET', results, id) }
    for k = 3, 7 do bytes = bytes + (job[k] and #job[k] or 0) end
    if given > 0 and (given == limit or bytes > 1048576) then
      more = 1
      break
    end
    for k = 1, 7 do out[7 * given + k] = job[k] end
    given = given + 1
  end
  last, score = id, at
end
return { 0, more, last, score, out }
