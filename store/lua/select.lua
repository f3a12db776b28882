-- Picks jobs of one set by what is kept of them: a page of ids to be changed. It looks at 500 jobs at most.
-- KEYS: the instance's.
-- ARGV: the set's number (see list.lua); how many at most; member and score of the last looked at, or '' and ''; only jobs that have
--   been in it for so many ms (-1: any); a text that the last error has to contain, or ''; '', or what the first page returned last: what has ended since
--   then is left, so that what a change of many jobs brings back is not changed again, and so is what is doing and to be cancelled since then.
-- Returns: 0; 1 if there may be more, else 0; member and score of the last looked at; the ids; now in ms.

local bad = foreign()
if bad then return bad end
local set = sets[tonumber(ARGV[1])]
local limit, last, score, age, text = tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local now, from = clock(), 0
local began = tonumber(ARGV[7]) or math.huge
local closed = tonumber(ARGV[1]) >= 5 and tonumber(ARGV[1]) <= 7 and began or math.huge
if last ~= '' then -- it may have left meanwhile, or have another place
  local rank = call('ZSCORE', set, last) == score and call('ZRANK', set, last)
  from = rank and rank + 1 or call('ZCOUNT', set, '-inf', '(' .. score)
end
local page = call('ZRANGE', set, from, from + 499, 'WITHSCORES')
local ids, all, more = {}, {}, #page == 1000 and 1 or 0
for i = 1, #page, 2 do all[#all + 1] = page[i] end
if set == doing then all = heldBy(all) end
local reasons = text ~= '' and look('HMGET', errors, all) or {}
local asked = set == doing and look('ZMSCORE', cancels, all) or {}
for i = 1, #all do
  if #ids == limit then
    more = 1
    break
  end
  if tonumber(page[2 * i]) > closed then
    more = 0
    break
  end
  last, score = page[2 * i - 1], page[2 * i]
  local fit = all[i] ~= '' and (age < 0 or now - since(set, score) >= age) and not (asked[i] and tonumber(asked[i]) >= began)
  if fit and (text == '' or (reasons[i] and string.find(reasons[i], text, 1, true))) then ids[#ids + 1] = all[i] end
end
return { 0, more, last, score, ids, whole(now) }
