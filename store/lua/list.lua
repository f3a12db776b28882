-- Reads a page of the jobs in one set: todo, scheduled, doing and parked from the first to be served on, the others from the latest
-- to end on.
-- KEYS: the instance's.
-- ARGV: the set's number (scheduled 1 ... cancelled 7, suspected todo 8); how many at most; member and score of the last looked at
--   for the page before, or '' and ''; how many bytes the jobs may have; 1 if the first may have more, else 0; only jobs that
--   have been in the set for so many ms (-1: any); a text that the last error has to contain, or ''.
-- Returns: 0; 2 if the page is full, 1 if there may be more otherwise, else 0; how many bytes are left; member and score of the last
--   looked at; for each job: id, score, record, run, error, progress, result. If the last member of the page before has left
--   the set meanwhile, or has another place in it, those of the score that it had come again.

local bad = foreign()
if bad then return bad end
local set = sets[tonumber(ARGV[1])]
local limit, last, score = tonumber(ARGV[2]), ARGV[3], ARGV[4]
local backwards = tonumber(ARGV[1]) >= 5 and tonumber(ARGV[1]) <= 7
local from = 0
if last ~= '' then
  local rank = call('ZSCORE', set, last) == score and call(backwards and 'ZREVRANK' or 'ZRANK', set, last)
  if rank then
    from = rank + 1
  elseif backwards then
    from = call('ZCOUNT', set, '(' .. score, '+inf')
  else
    from = call('ZCOUNT', set, '-inf', '(' .. score)
  end
end
local room, age, text = tonumber(ARGV[5]), tonumber(ARGV[7]), ARGV[8]
local now, ask = clock(), (age >= 0 or text ~= '') and 500 or limit
local page = call(backwards and 'ZREVRANGE' or 'ZRANGE', set, from, from + ask - 1, 'WITHSCORES')
local out, given, more = {}, 0, #page == 2 * ask and 1 or 0
for i = 1, #page, 2 do
  local id, at = page[i], page[i + 1]
  if set == doing then id = heldBy({ id })[1] end
  local why = call('HGET', errors, id)
  if id ~= '' and (age < 0 or now - since(set, at) >= age) and (text == '' or (why and string.find(why, text, 1, true))) then
    local record = call('HGET', jobs, id)
    local job = { id, at, record, runOf(id, record), why, call('HGET', progress, id), call('HGET', results, id) }
    local bytes = 0
    for k = 1, 7 do bytes = bytes + (job[k] and #job[k] or 0) end
    if given == limit or (bytes > room and not (given == 0 and ARGV[6] == '1')) then
      more = 2
      break
    end
    for k = 1, 7 do out[7 * given + k] = job[k] end
    given, room = given + 1, math.max(0, room - bytes)
  end
  last, score = page[i], at
end
return { 0, more, room, last, score, out }
