-- Accepts jobs.
-- KEYS: the instance's, the lane.
-- ARGV: request number; number of jobs; number of arguments a job: 4, 6 if one has any of the two after that, 7 if one has a parent; for each job: id, record
--   less its first 14 bytes (version and time), 10 - priority, when to run (0 for now, a time in ms, or a delay in ms with a minus
--   before it), its deadline in ms or '', its mode of uniqueness and key or '' (w, for a window, is followed by its ms and a
--   space); where its outcome is to go, or ''.
-- Returns: 0; a letter for each job: a accepted, e there is one with this id, u another has its key; followed, for each u,
--   by the other's id; 1 if the instance may be new, else 0.

local bad = foreign()
if bad then return bad end
local number, n, width = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local answer, late = said(number)
if late then return late end
if answer then
  say(number, answer) -- a write, so that replicas are waited for that may not have the first
  return { 0, answer, 1 } -- whoever asks again may not have made the instance known
end
local now = clock()

local ids = {}
for i = 1, n do ids[i] = ARGV[width * (i - 1) + 4] end
local there = look('HMGET', jobs, ids)
local owed = width == 7 and look('HMGET', outbox, ids) or {} -- a child that has ended, and whose parent does not know yet
local notes = call('HMGET', meta, 'maxrec', 'paused', 'seq')
local soonest = call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
local first = soonest[2] and tonumber(soonest[2]) -- (to assign it to the same name goes wrong in the embedded server's Lua)

local letters, others, records, places, dues, seen = {}, {}, {}, {}, {}, {}
local newDeadlines, newLocks, newOwners, newWindows, newParents, ended, taken = {}, {}, {}, {}, {}, {}, {}
local start, longest, claimable = '1' .. format('%013.0f', now), 0, 0
for i = 1, n do
  local at = width * (i - 1) + 4
  local id, priority, due = ids[i], ARGV[at + 2], tonumber(ARGV[at + 3])
  local by, unique = width > 4 and ARGV[at + 4] or '', width > 4 and ARGV[at + 5] or ''
  local mode, window, key, other = sub(unique, 1, 1), '', sub(unique, 2), nil
  if mode == 'w' then window, key = match(key, '^(%d+) (.*)$') end
  if mode ~= '' then other = taken[key] or holder(key, id, now) end
  if there[i] or seen[id] or owed[i] then
    letters[i] = 'e'
  elseif other then
    letters[i] = 'u'
    others[#others + 1] = other
  else
    letters[i] = 'a'
    seen[id] = true
    if mode ~= '' then
      taken[key] = id
      local ends = ''
      if mode == 'w' then
        ends = whole(now + tonumber(window))
        newWindows[#newWindows + 1] = ends
        newWindows[#newWindows + 1] = key
      else
        ended[#ended + 1] = key -- no longer a window's
        newOwners[#newOwners + 1] = id
        newOwners[#newOwners + 1] = mode .. key
      end
      newLocks[#newLocks + 1] = key
      newLocks[#newLocks + 1] = mode .. id .. ends
    end
    if by ~= '' then
      newDeadlines[#newDeadlines + 1] = by
      newDeadlines[#newDeadlines + 1] = id
    end
    if width == 7 and ARGV[at + 6] ~= '' then
      newParents[#newParents + 1] = id
      newParents[#newParents + 1] = ARGV[at + 6]
    end
    local record = start .. ARGV[at + 1]
    if #record > longest then longest = #record end
    records[#records + 1] = id
    records[#records + 1] = record
    if due < 0 then due = now - due end
    if due <= now then
      claimable = claimable + 1
      places[#places + 1] = tonumber(priority) * TOP
      places[#places + 1] = id
    else
      due = due * 16 + tonumber(priority)
      dues[#dues + 1] = whole(due)
      dues[#dues + 1] = id
      if not first or due < first then first, claimable = due, math.max(claimable, 1) end
    end
  end
end
if #places > 0 then
  local seq = reserve(#places / 2, now)
  for i = 1, #places, 2 do
    places[i] = whole(places[i] + seq)
    seq = seq + 1
  end
end
add('HSET', jobs, records)
add('HSET', locks, newLocks)
add('HSET', owners, newOwners)
add('ZADD', windows, newWindows)
add('ZADD', deadlines, newDeadlines)
add('HSET', parents, newParents)
add('ZADD', todo, places)
add('ZADD', scheduled, dues)
if longest > (tonumber(notes[1] or 0) or 0) then call('HSET', meta, 'maxrec', longest) end
drop('ZREM', windows, ended)
if not notes[2] then wake(claimable) end
answer = table.concat(letters) .. table.concat(others)
say(number, answer)
return { 0, answer, notes[3] and 0 or 1 }
